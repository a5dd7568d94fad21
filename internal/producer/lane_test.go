package producer

import (
	"encoding/json"
	"strings"
	"testing"

	"spillway/internal/job"
)

func TestLaneOfAJob(t *testing.T) {
	t.Parallel()
	field, needed, own, ownNeeded := &job.LaneKey{Field: "m.id"}, &job.LaneKey{Field: "m.id", Required: true}, &job.LaneKey{}, &job.LaneKey{Required: true}
	for _, c := range []struct {
		key            *job.LaneKey
		named, payload string
		lane, wrong    string
	}{
		{nil, "", `{}`, "", ""},
		{nil, "a", `{}`, "", `lane "a": gateway g has no lanes: leave the lane out, or write lanes in the configuration`},
		{field, "", `{"m":{"id":"a b"}}`, "a b", ""},
		{field, "", `{"m":{"id":7}}`, "7", ""},
		{field, "", `{"m":{"id":null}}`, "", ""},
		{field, "", `{"m":3}`, "", ""},
		{field, "", ``, "", ""},
		{field, "", `{"m":{"id":true}}`, "", "the field m.id is the lane, and must be a text in quotes or a whole number"},
		{field, "7", `{"m":{"id":7}}`, "7", ""},
		{field, "8", `{"m":{"id":7}}`, "", `lane "8": the lanes of gateway g are what the payload has as m.id, which is not that: leave the lane out`},
		{needed, "", `{"m":{}}`, "", "no lane: each call of gateway g has its lane in a header, and the payload's field m.id is missing, null or empty"},
		{own, "", `{"m":{"id":7}}`, "", ""},
		{own, "ü", `{}`, "ü", ""},
		{own, "a\n", `{}`, "", `the lane's name has the character '\n', which can't be printed`},
		{own, strings.Repeat("x", 129), `{}`, "", "the lane's name has 129 bytes: give it 1 to 128"},
		{ownNeeded, "", `{}`, "", `no lane: each call of gateway g has its lane in a header, so say it in the line, as "lane"`},
	} {
		lane, err := Lane("g", c.key, c.named, json.RawMessage(c.payload))
		if c.wrong == "" && (err != nil || lane != c.lane) || c.wrong != "" && (err == nil || err.Error() != c.wrong) {
			t.Errorf("%+v, %q, %s: got %q, %v", c.key, c.named, c.payload, lane, err)
		}
	}
}
