package console

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

func TestAReplayGoesAsFastAsTheFormSays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]desk.Pace{"": {}, "50/s": {Rate: 50}, "3000/m": {Rate: 50}, "20%": {Share: .2}} {
		p, err := parsePace(url.Values{"pace": {text}})
		if err != nil {
			t.Fatal(err)
		}
		if p.Rate != want.Rate || p.Share != want.Share {
			t.Errorf("%q: %+v, want %+v", text, p, want)
		}
	}
	for _, bad := range []url.Values{{"pace": {"fast"}}, {"pace": {"0%"}}, {"pace": {"101%"}}, {"pace": {"50"}}, {"canary": {"0"}}, {"canary": {"some"}}} {
		if p, err := parsePace(bad); err == nil {
			t.Errorf("%v: %+v", bad, p)
		}
	}
}

// No dispatcher serves the gateway. So the job that is sent ahead does not finish, and the others stay parked.
func TestACanaryOfTheConsoleGoesFirst(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	ids := r.park(3, `{}`, job.Refused, "HTTP 402")
	at := "/gateways/" + r.g.Name + "/clear"
	_, preview := r.get(at + "?do=replay")
	wants(t, preview, `name="pace"`, `name="canary"`)
	f := form(t, preview)
	f.Set("who", "Ada")
	f.Set("canary", "zero")
	if status, page := r.post(at, f); status != 400 || !strings.Contains(page, "a number from 1") {
		t.Errorf("%d\n%s", status, page)
	}
	f.Set("canary", "1")
	f.Set("pace", "50%")
	if status, _ := r.post(at, f); status != 200 {
		t.Fatalf("status %d", status)
	}
	states := func() (all []job.State) {
		for _, id := range ids {
			all = append(all, r.record(id).State)
		}
		return all
	}
	testkit.Eventually(t, 10*time.Second, "the first to go", func() bool { return states()[0] == job.Queued })
	if got := states(); got[1] != job.Parked || got[2] != job.Parked {
		t.Errorf("the jobs are %v, want the first ahead of the others", got)
	}
	if a := r.lastAct(); a.What != "replay" || !strings.HasSuffix(a.Filter, "--share 50% --canary 1") {
		t.Errorf("the trail says %+v", a)
	}
	_, discard := r.get(at + "?do=discard")
	lacks(t, discard, `name="pace"`)
}
