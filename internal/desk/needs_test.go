package desk

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/testkit"
)

// Needs are in the order of their urgency. Each says since when, which jobs wait for it, and what to type. States that end by themselves are no needs.
func TestWhatNeedsAPersonIsSaidMostUrgentFirst(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	var euro job.Totals
	euro.Amount.Add(job.Money{Minor: big.NewInt(4900), Currency: "EUR"})
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	var all []Status
	gateway := func(name string, v dispatch.Glance) {
		v.Now, v.Queued = now, 3
		all = append(all, StatusOf(name, v, map[job.Reason]job.Totals{job.UnknownOutcome: euro}))
	}
	gateway("paused", dispatch.Glance{Hold: bucket.Standing{Paused: true, PauseWhy: "audit"}, Stopped: "x", Since: ago(2 * time.Hour)})
	gateway("paused-just-now", dispatch.Glance{Hold: bucket.Standing{Paused: true}, Stopped: "x", Since: ago(time.Minute)})
	gateway("full", dispatch.Glance{ParkedNear: job.ParkedBound{Jobs: 100, Bytes: 2048}})
	gateway("refused", dispatch.Glance{Standing: record.Standing{Parked: map[job.Reason]int64{job.Refused: 7, job.Rejected: 9}}})
	gateway("unserved", dispatch.Glance{Stopped: "no dispatcher", Since: ago(time.Minute)})
	gateway("open", dispatch.Glance{Hold: bucket.Standing{Circuit: true, Endless: true, Reason: "HTTP 503"}, Stopped: "x", Since: ago(3 * time.Minute)})
	gateway("open-just-now", dispatch.Glance{Hold: bucket.Standing{Circuit: true, Endless: true}, Stopped: "x", Since: ago(time.Minute)})
	gateway("held", dispatch.Glance{Hold: bucket.Standing{HeldUntil: now.Add(time.Hour), Reason: "HTTP 429"}, Since: ago(time.Hour)})
	gateway("denied", dispatch.Glance{Hold: bucket.Standing{Denied: true, Endless: true, Reason: "HTTP 401"}, Stopped: "x", Since: ago(time.Minute)})
	gateway("doubted", dispatch.Glance{Hold: bucket.Standing{Paused: true, Barred: true, PauseWhy: "old data"}, Stopped: "x"})
	for i, name := range []string{"late", "early"} {
		gateway(name, dispatch.Glance{Standing: record.Standing{Parked: map[job.Reason]int64{job.UnknownOutcome: 2},
			Oldest: map[job.Reason]time.Time{job.UnknownOutcome: ago(time.Duration(i+1) * time.Hour)}}})
	}
	last := ago(time.Hour)
	unlisted := []Unlisted{{Gateway: "up", Totals: job.Totals{Jobs: 5}, LastServed: &last}, {Gateway: "elsewhere", Totals: job.Totals{Jobs: 5}, Served: true}}
	needs, _, err := New(testkit.Client(t), nil).Needs(t.Context(), all, unlisted)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range needs {
		since := "?"
		if n.Since != nil {
			since = now.Sub(*n.Since).String()
		}
		got = append(got, fmt.Sprint(n.Kind, " ", n.Gateway, " ", n.Totals, " ", since))
		if n.What == "" || n.Do == "" || n.Runbook == "" || strings.Contains(n.Text()+n.Do, "%") {
			t.Errorf("%+v", n)
		}
	}
	want := `unknown_outcome early 2 jobs (EUR 49.00) 2h0m0s
unknown_outcome late 2 jobs (EUR 49.00) 1h0m0s
stopped doubted 3 jobs ?
denied denied 3 jobs 1m0s
circuit_open open 3 jobs 3m0s
unserved unserved 3 jobs 1m0s
unlisted up 5 jobs 1h0m0s
parked_most full 0 jobs (EUR 49.00) ?
parked_bytes full 0 jobs (EUR 49.00) ?
refused refused 7 jobs ?
paused paused 3 jobs 2h0m0s`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
}

// A paused gateway says since when, and so does one that denies access.
func TestAHoldSaysSinceWhen(t *testing.T) {
	t.Parallel()
	g := one(t)
	before := time.Now().Add(-time.Second)
	p, err := dispatch.Pacer(g.redis, g.Gateway, bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	trouble := job.Failure{Kind: job.Deny, Job: "j", Written: true, Why: "HTTP 401"}
	if _, err := p.Failed(t.Context(), job.Circuit{Failures: 5, Ratio: 50, Calls: 20, Window: 10 * time.Second, Max: time.Hour}, trouble); err != nil {
		t.Fatal(err)
	}
	check := func(word string) {
		s, err := g.Status(t.Context())
		if err != nil || s.Word() != word || s.Glance.Since.Before(before) || s.Glance.Since.After(time.Now().Add(time.Second)) {
			t.Errorf("want %s: %s since %s, %v", word, s.Word(), s.Glance.Since, err)
		}
	}
	check(Denied)
	if err := g.Pause(t.Context(), By{Who: "a test", Why: "audit"}, "audit"); err != nil {
		t.Fatal(err)
	}
	check(Paused)
}

// The money of a held gateway is that of all its jobs: those in the queue, and those that wait for room.
func TestANeedHasTheMoneyOfJobsThatWaitForRoom(t *testing.T) {
	t.Parallel()
	text := "redis: redis://x\ngateways:\n  " + testkit.Gateway(t) + `:
    request: {url: "http://gateway.invalid/"}
    amount: {field: amount, currency: currency}
    leak: {limits: [100/s]}
    admission: {limits: [1/1h], burst: 2}
`
	cfg, err := config.Parse("x.yaml", []byte(text), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := New(testkit.Client(t), cfg.Gateways)
	g := d.Gateways[0]
	var jobs []job.Job
	for i := range 3 {
		payload := fmt.Appendf(nil, `{"amount":%d00,"currency":"EUR"}`, i+1)
		jobs = append(jobs, job.Job{ID: fmt.Sprint("j", i), Gateway: g.Name, Batch: "b", Payload: payload, Cost: 1})
	}
	if _, err := dispatch.Door(g.redis, cfg, time.Second).Admit(t.Context(), g.Name, jobs, admission.Park); err != nil {
		t.Fatal(err)
	}
	p, err := dispatch.Pacer(g.redis, g.Gateway, bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	trouble := job.Failure{Kind: job.Deny, Job: "j0", Written: true, Why: "HTTP 401"}
	if _, err := p.Failed(t.Context(), g.Circuit, trouble); err != nil {
		t.Fatal(err)
	}
	s, err := d.Status(t.Context())
	if err != nil || s[0].ForRoom() != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	for range 2 { // the first time must not change what the status has
		needs, _, err := d.Needs(t.Context(), s, nil)
		if err != nil || len(needs) != 1 || needs[0].Totals.String() != "3 jobs (EUR 6.00)" {
			t.Errorf("%+v, %v", needs, err)
		}
	}
}

// Pending jobs need no person. Look-ups need one only when they have failed for long.
func TestLookupsNeedAPersonOnceTheyFailForLong(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	for failing, want := range map[time.Duration]int{0: 0, FailingLong - time.Second: 0, FailingLong: 1} {
		v := dispatch.Glance{Standing: record.Standing{Now: now, Pending: 3}}
		if failing > 0 {
			v.Asking.Failing, v.Asking.FailingJob, v.Asking.FailingWhy = now.Add(-failing), "a b", "HTTP 503"
		}
		needs := StatusOf("stripe", v, nil).needs()
		if len(needs) != want {
			t.Errorf("look-ups that fail for %s: %+v", failing, needs)
		}
		if len(needs) == 1 && (needs[0].Kind != NeedLookups || needs[0].Jobs != 3 || !strings.HasSuffix(needs[0].Do, "dispatcher job 'a b'") ||
			needs[0].What != "look-ups of pending jobs fail, such as that of a b: HTTP 503") {
			t.Errorf("%+v", needs[0])
		}
	}
}

// A gateway that is held for a reader of its outcomes has a kind of need of its own. If its data is in doubt too, it counts as stopped.
func TestAReaderThatIsFarBehindNeedsAPerson(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	held := &feed.Standing{Held: now.Add(-time.Minute), WaitsFor: "ledger"}
	v := dispatch.Glance{Hold: bucket.Standing{Paused: true, Barred: true, PauseWhy: "the reader ledger is far behind", Since: held.Held}, Outcomes: held, Stopped: "x", Since: held.Held}
	v.Now = now
	needs := StatusOf("stripe", v, nil).needs()
	if len(needs) != 1 || needs[0].Kind != NeedReader || !needs[0].Since.Equal(held.Held) || needs[0].What != "the reader ledger is far behind" ||
		needs[0].Do != "see why ledger does not read: dispatcher outcomes -g stripe --reader ledger --limit 1" || needs[0].Runbook != "docs/runbook.md#spillwayoutcomesheld" {
		t.Errorf("%+v", needs)
	}
	v.Hold.Since = time.Time{} // as of doubt
	if needs := StatusOf("stripe", v, nil).needs(); len(needs) != 1 || needs[0].Kind != NeedStopped {
		t.Errorf("%+v", needs)
	}
}
