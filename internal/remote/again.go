package remote

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"spillway/internal/desk"
	"spillway/internal/job"
)

// again plans what a token identifies once more.
func (q ClearOf) again(ctx context.Context, h *Here) (*desk.Plan, error) {
	var m mark
	text, err := base64.RawURLEncoding.DecodeString(q.Token)
	if err != nil || json.Unmarshal(text, &m) != nil || m.Until == nil {
		return nil, usage("ask for a preview, and send its token with the same body", "the token is not one of a preview")
	}
	if q.IfChanged != "" && q.IfChanged != "stop" && q.IfChanged != "go_on" {
		return nil, usage("write stop or go_on", fmt.Sprintf("if_changed %.40q is neither of the two", q.IfChanged))
	}
	s, err := q.selected(ctx, h, "")
	if err != nil {
		return nil, err
	}
	upTo := make(map[string]time.Time, len(m.Until))
	for gateway, us := range m.Until {
		upTo[gateway] = time.UnixMicro(us)
	}
	v, err := q.preview(ctx, s.UpTo(upTo))
	if err != nil && job.CodeOf(err) != job.CodeNotFound {
		return nil, err
	}
	if err != nil {
		v.plan = &desk.Plan{}
		v.plan.Action, _ = desk.ActionOf(q.Action)
	}
	if now := (mark{}); q.IfChanged != "go_on" {
		text, _ := base64.RawURLEncoding.DecodeString(v.Token)
		if _ = json.Unmarshal(text, &now); now.Sum != m.Sum || !maps.Equal(now.Until, m.Until) {
			return nil, &coded{&job.Error{Code: job.CodeFailed, Message: "the jobs, or what is asked, are no longer what was previewed, and nothing was done",
				Hint: "ask for a preview again, and look at it"}, "changed"}
		}
	}
	return v.plan, nil
}
