package desk

import (
	"encoding/base64"
	"encoding/json"
)

// shownMark is the content of a batch's token: the state shown of each gateway's part.
type shownMark struct {
	Batch string            `json:"b"`
	Shown map[string]string `json:"s"`
}

// ShownToken returns the token of a batch as shown to an approver.
func ShownToken(batch string, all []BatchApproval) (string, error) {
	m := shownMark{batch, map[string]string{}}
	for _, a := range all {
		m.Shown[a.Gateway] = a.shown
	}
	text, err := json.Marshal(m)
	return base64.RawURLEncoding.EncodeToString(text), err
}

// ShownBy parses the token of this batch: the state shown of each gateway's part.
func ShownBy(batch, token string) (map[string]string, error) {
	var m shownMark
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || json.Unmarshal(text, &m) != nil || m.Batch != batch || m.Shown == nil {
		return nil, usage("ask with dry_run first, look at it, and send its token", "the token is not one of what was shown of this batch")
	}
	return m.Shown, nil
}
