package console

import (
	"regexp"
	"strings"
	"testing"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

var readsPayload = regexp.MustCompile(`(?i)"hmget" .*job:\S+ .*"p\d*"`)

// A preview and its act read a payload only if the record does not have the money.
func TestAPreviewReadsNoPayloads(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	ids := r.park(59, `{"amount":1200,"currency":"EUR"}`, job.Refused, "HTTP 402: no")
	if err := r.db.Client.HDel(t.Context(), r.keys().Job(ids[7]), "m").Err(); err != nil { // as an old version left it
		t.Fatal(err)
	}
	reads := 0
	for _, line := range testkit.Monitored(t, func() {
		preview, _ := r.do("do=discard&reason=refused")
		wants(t, preview, "Discard: 59 jobs")
	}) {
		if strings.Contains(line, r.g.Name) && readsPayload.MatchString(line) {
			reads++
		}
	}
	if reads != 2 { // the one, by the preview and by the act
		t.Errorf("%d payloads were read, and one record alone does not say its money: twice, by preview and act", reads)
	}
}
