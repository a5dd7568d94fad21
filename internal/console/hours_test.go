package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/redisdb"
)

// The calls of the last day are on the page of hours, on the page of the gateway, and on that of its answers.
func TestTheHoursOfTheLastDayAreShown(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	at := "/gateways/" + r.g.Name
	_, page := r.get(at + "/answers")
	wants(t, page, "No call has ended since", "<b>0</b>")
	now, err := r.db.Client.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for field, n := range map[string]int{fmt.Sprint(now.Unix()/3600, " 200 done"): 3411, fmt.Sprint(now.Unix()/3600-5, " 402 refused"): 12, fmt.Sprint(now.Unix()/3600-5, " 0 unknown"): 1} {
		if err := r.db.Client.HSet(t.Context(), redisdb.NewKeys(r.g.Name).Hours(), field, n).Err(); err != nil {
			t.Fatal(err)
		}
	}
	hour := now.UTC().Add(-5 * time.Hour).Format("2006-01-02 15:00 UTC")
	for _, path := range []string{"/hours", at + "/answers"} {
		_, page = r.get(path)
		wants(t, page, "<b>3\u202f424</b>", "200 done <b>3\u202f411</b>", "402 refused <b>12</b>", "no answer, unknown <b>1</b>", hour, "3,424 calls, 3,411 of them done; 3,411 in the busiest hour", ": 13 calls, 0 of them done")
		if n := strings.Count(page, `class="hour"`); n != 2 {
			t.Errorf("%s: %d hours with calls, want 2", path, n)
		}
	}
	_, page = r.get("/hours")
	wants(t, page, `href="`+at+`/answers"`)
	_, page = r.get(at)
	wants(t, page, "<b>3\u202f424</b>", "calls in the last 24 hours", at+"/answers")
}
