package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// lookups gives gateway one a look-up. Gateway two has none.
func (r *rig) lookups() {
	r.t.Helper()
	text, err := os.ReadFile(r.file)
	r.must(err)
	const replay = "    replay: manual\n"
	with := strings.Replace(string(text), replay, replay+`    lookup:
      url: /charges?reference={id}
      matches: {amount: amount}
      answers: [{status: 200, body: {status: paid}, then: done}]
`, 1)
	r.must(os.WriteFile(r.file, []byte(with), 0o600))
	r.cfg, err = config.Load(r.file, config.Options{})
	r.must(err)
}

// pend calls a job of gateway one and loses the answer. The job becomes pending: the gateway is asked about it.
func (r *rig) pend(j job.Job) {
	r.t.Helper()
	g := r.manual(r.one)
	r.accept(g, job.Enqueued, j)
	id, generation, _ := job.ParseTaskID(testkit.Pop(r.t, r.c, redisdb.NewKeys(r.one).Lines()))
	a, opening, err := dispatch.Books(r.c, g).Open(r.ctx, id, generation, "w1", time.Minute)
	r.must(err)
	if id != j.ID || opening != job.OpenGo {
		r.t.Fatalf("pulled %s, and opened: %s", id, opening)
	}
	e := job.Ending{Called: true, Spent: true, Verdict: job.VerdictUnknown, Error: "timed out", At: time.UnixMicro(1), Unsure: true, Took: time.Second}
	asked, err := dispatch.Store(r.c, g).ParkOrAsk(r.ctx, a, e, job.UnknownOutcome)
	r.must(err)
	if rec := r.record(r.one, j.ID); !asked || rec.State != job.Pending {
		r.t.Fatalf("%s is %s, asked about: %v", j.ID, rec.State, asked)
	}
}

// lookFails makes the look-up that is due; it fails.
func (r *rig) lookFails() job.Look {
	r.t.Helper()
	books := dispatch.Books(r.c, r.gateway(r.one))
	l, _, ok, err := books.ClaimLook(r.ctx, ledger.Claim{Owner: "l1", For: time.Minute})
	r.must(err)
	if !ok {
		r.t.Fatal("no look-up is due")
	}
	e := ledger.LookEnd{Finding: job.Finding{Verdict: job.LookLater, Failed: true, Error: "HTTP 503: busy"}, At: time.UnixMicro(1), Next: time.Hour, Least: time.Second}
	came, err := books.EndLook(r.ctx, l, e)
	r.must(err)
	if came != ledger.AfterAsking {
		r.t.Fatalf("after a look-up that failed, the job is %s", came)
	}
	return l
}

func (r *rig) says(want string, args ...string) {
	r.t.Helper()
	if got := r.commandWith(person(), args...); got.code != 0 || !strings.Contains(squeeze(got.out)+got.err, want) {
		r.t.Errorf("%v: %+v\nwants %s", args, got, want)
	}
}

// A pending job is shown as live. It waits in the books of its batch, it is not listed as parked, and it needs no person.
func TestAPendingJobIsShownAsLive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lookups()
	r.served()
	r.pend(charge("a", "700", "nov"))
	r.says("nothing needs a person", "status")
	for _, c := range []struct{ args, want string }{
		{"status -o json", `"retrying":0,"pending":1,"next_lookup_at":"TIME","done":0,"parked":{}`},
		{"batch nov -o json", `"pending":{"jobs":1,"next_lookup_at":"TIME"}`},
		{"batch nov -o json", `"states":[{"state":"pending","jobs":1,"amount":{"EUR":700},"without_amount":0}],"eta_seconds":`},
		{"batch list -o json", `"state":"active"`},
		{"batch list -o json", `"waiting":{"jobs":1,"amount":{"EUR":700},"without_amount":0}`},
		{"job a -o json", `"next_lookup_at":"TIME","call_ended_at":"TIME","may_have_charged":true,"calls":[{"at":"TIME","seconds":1,"status":0,"verdict":"unknown"}]`},
		{"export --state pending -o json", `"id":"a","gateway":"one","batch":"nov","state":"pending"`},
		{"audit -o json", `"retrying":0,"pending":1,"done":0`},
		{"batch nov", "\tasked about\t\t\tthe gateway is asked what became of 1 job, next at TIME\t"},
		{"job a", "why\tthe gateway is asked what became of its call: the next look-up is due at TIME\n"},
		{"job a", "\nnext look-up\tTIME\n"},
	} {
		if got := r.command(strings.Fields(c.args)...); got.code != 0 || !strings.Contains(got.out, c.want) {
			t.Errorf("%s: exit code %d\n%s%s\nwants %s", c.args, got.code, got.out, got.err, c.want)
		}
	}
	if got := r.command("batch", "nov", "-o", "json"); strings.Contains(got.out, `"eta_seconds":null`) {
		t.Errorf("no ETA: %s", got.out)
	}
	if got := r.run("list"); got.out != "" {
		t.Errorf("the dead letters are %s", got.out)
	}
	if got := r.command("export", "--state", "parked"); strings.Contains(got.out, "pending") {
		t.Errorf("the parked jobs are %s", got.out)
	}
}

// "dlq resolve --ask" has the gateway asked about jobs that may have been charged. Gateways without a look-up can't be asked.
func TestResolveAskHasTheGatewayAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lookups()
	r.park(r.one, charge("a", "1", "nov"), job.UnknownOutcome, 0, "timed out")
	r.park(r.one, charge("b", "2", ""), job.Exhausted, 500, "HTTP 500")
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).Job("b"), record.Short("may_have_charged"), "1").Err())
	r.park(r.one, charge("sure", "4", ""), job.Refused, 402, "HTTP 402")
	r.park(r.two, charge("elsewhere", "8", ""), job.UnknownOutcome, 0, "timed out")
	r.expect(r.run("resolve", "--ask", "-g", r.two), 2, "", "dispatcher: no look-up is configured for two\n"+
		"hint: look the jobs up there, then say --done or --not-done; or give the gateway a lookup in the file\n")
	const noLookup = "its gateway has no lookup in the file: look it up there, then dlq resolve --done or --not-done"
	r.expect(r.run("resolve", "--ask"), 0, "no filter is given: this means every parked job that may have been charged of all gateways\n"+
		"one: 2 jobs (EUR 0.03)\n  unknown_outcome: 1 job (EUR 0.01)\n  exhausted: 1 job (EUR 0.02)\ntwo: 1 job\n  unknown_outcome: 1 job\nwould be held back: 1 job: "+noLookup+
		"\ndry run: 2 jobs (EUR 0.03) would be asked about; nothing was changed\n", "add --yes to do it\n")
	if r.record(r.one, "a").State != job.Parked || r.trail(r.one) != "" {
		t.Error("a dry run has done something")
	}
	got := r.run("resolve", "--ask", "--yes", "-o", "json")
	if got.code != 0 || !strings.Contains(got.out, `"jobs":3,"asked":2,"held_back":1,"gone":0,"dry_run":false,"amount":{"EUR":3}`) {
		t.Errorf("%+v", got)
	}
	for _, id := range []string{"a", "b"} {
		if rec := r.record(r.one, id); rec.State != job.Pending || !rec.Unsure || rec.NextLook.After(time.Now().Add(time.Second)) {
			t.Errorf("%s is %s, may have charged: %v, next look-up at %s", id, rec.State, rec.Unsure, rec.NextLook)
		}
	}
	if trail := r.trail(r.one); !strings.Contains(trail, `"what":"resolve --ask","filter":"","jobs":2,"amount":{"EUR":3}`) {
		t.Errorf("the trail has %s", trail)
	}
	r.expect(r.run("resolve", "--ask", "--id", "sure", "--yes"), 0, "asked about 0 jobs, held back 1\nheld back: 1 job: it can't have been charged, so there is nothing to settle: replay or discard it\n", "")
	for _, args := range [][]string{{"--ask", "--done", "--why", "w"}, {"--ask", "--reference", "ch_1", "--id", "a"}} {
		if got := r.run(append([]string{"resolve"}, args...)...); got.code != 2 {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if got := r.command("audit"); got.code != 0 {
		t.Errorf("the audit: %+v", got)
	}
}

// A person can stop the look-ups of a job, and resolve it.
func TestAPersonMayStopTheAsking(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lookups()
	r.pend(charge("a", "700", "nov"))
	who, err := cli.WhoAmI()
	r.must(err)
	got := r.run("discard", "--id", "a", "--why", "w", "--yes", "--may-be-charged")
	r.expect(got, 4, "", "dispatcher: job \"a\" is not parked: it is pending at one, which is asked what became of it\n"+
		"hint: see what is parked with \"dispatcher dlq list\", and any job with \"dispatcher job ID\"\n")
	r.expect(r.command("park", "a", "--why", "seen there"), 0, "would park job \"a\" (EUR 7.00) at one, which is pending and may have been charged, as unknown_outcome\n",
		"nothing was done: add --yes to do it\n")
	r.expect(r.command("park", "a", "--why", "seen there", "--yes", "-o", "json"), 0,
		`{"id":"a","gateway":"one","was":"pending","reason":"unknown_outcome","may_have_charged":true,"amount":{"EUR":700},"without_amount":0,"done":true}`+"\n", "")
	rec := r.record(r.one, "a")
	if rec.State != job.Parked || rec.Reason != job.UnknownOutcome || !rec.NextLook.IsZero() || !strings.HasPrefix(rec.Error, "parked by "+who+": seen there") {
		t.Errorf("it is %s %s, next look-up at %s: %s", rec.State, rec.Reason, rec.NextLook, rec.Error)
	}
	if n, err := r.c.ZCard(r.ctx, redisdb.NewKeys(r.one).Asking()).Result(); err != nil || n != 0 {
		t.Errorf("%d are asked about: %v", n, err)
	}
	r.expect(r.run("resolve", "--done", "--id", "a", "--reference", "ch_3K", "--why", "seen there", "--yes", "-q"), 0, "resolved 1 job (EUR 7.00)\n", "")
	if got := r.command("audit"); got.code != 0 || r.record(r.one, "a").State != job.Done {
		t.Errorf("it is %s; the audit: %+v", r.record(r.one, "a").State, got)
	}
}

// Look-ups that fail need a person only after a quarter of an hour. Then each view says so.
func TestLookupsThatFailForLongNeedAPerson(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lookups()
	r.served()
	r.park(r.one, charge("a", "700", ""), job.UnknownOutcome, 0, "timed out")
	r.expect(r.run("resolve", "--ask", "--yes", "-q"), 0, "asked about 1 job (EUR 7.00)\n", "")
	r.lookFails()
	r.says("nothing needs a person", "status")
	if got := r.command("job", "a"); !strings.Contains(got.out, "\nlast look-up\tHTTP 503: busy\nlook-ups fail since\tTIME\n") {
		t.Errorf("%+v", got)
	}
	at := record.Micros(r.record(r.one, "a").LookFailing) - (16 * time.Minute).Microseconds()
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).Job("a"), record.Short("ask_failing"), at).Err())
	r.says("one: look-ups of pending jobs fail, such as that of a: HTTP 503: busy; 1 job, since TIME", "status")
	if got := r.command("status", "-o", "json"); !strings.Contains(got.out, `"needs_person":[{"kind":"lookups_fail","gateway":"one"`) {
		t.Errorf("%+v", got)
	}
	if got := r.command("doctor", "-o", "json"); !strings.Contains(got.out, `"check":"lookups_fail","gateway":"one","level":"warn","message":"look-ups of pending jobs fail since TIME, such as that of a: HTTP 503: busy"`) ||
		!strings.Contains(got.out, `{"check":"pending","gateway":"one","level":"ok","message":"it is asked what became of 1 job, for the longest since TIME, next at TIME"}`) {
		t.Errorf("%+v", got)
	}
}

// If the file has no look-up any more, a dispatcher parks pending jobs. Until then, doctor says that no look-ups are made.
func TestAPendingJobWithoutALookUpIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lookups()
	r.pend(charge("a", "700", ""))
	r.configure(r.url)
	if got := r.command("doctor", "-o", "json"); !strings.Contains(got.out, `"check":"no_lookup","gateway":"one","level":"warn","message":"no look-ups are made any more for 1 job: the file has no lookup"`) {
		t.Errorf("%+v", got)
	}
}

// Pause and cancel of a batch leave its pending jobs alone, and say how many there are. Jobs that a cancel finds in doubt become pending.
func TestABatchThatIsStoppedSaysWhatIsPending(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lookups()
	r.served()
	r.pend(charge("a", "100", "nov"))
	r.accept(r.gateway(r.one), job.Enqueued, charge("b", "200", "nov"), charge("c", "400", "nov"))
	id, generation, _ := job.ParseTaskID(testkit.Pop(t, r.c, redisdb.NewKeys(r.one).Lines()))
	books := dispatch.Books(r.c, r.gateway(r.one))
	a, _, err := books.Open(r.ctx, id, generation, "w1", time.Minute)
	r.must(err)
	r.must(books.Back(r.ctx, a, job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, Unsure: true, At: time.UnixMicro(1)}, time.Hour))
	const leaves = "one: 1 job (EUR 1.00) of batch \"nov\" may have been charged, and is pending: its gateway is asked, and can tell\n"
	r.expect(r.command("batch", "pause", "nov", "--why", "wrong"), 0, "one: would pause 2 jobs (EUR 6.00) of batch \"nov\"\n"+leaves, "nothing was done: add --yes to do it\n")
	r.expect(r.command("batch", "pause", "nov", "--why", "wrong", "--yes"), 0, "one: paused 2 jobs (EUR 6.00) of batch \"nov\"\n"+leaves, "")
	r.expect(r.command("batch", "resume", "nov", "--why", "right", "--yes"), 0, "one: resumed 2 jobs (EUR 6.00) of batch \"nov\"\n", "")
	r.expect(r.command("batch", "cancel", "nov", "--why", "wrong", "--yes"), 0, "one: cancelled 2 jobs (EUR 6.00) of batch \"nov\"\n"+
		"one: 2 jobs (EUR 3.00) of batch \"nov\" may have been charged, and are pending: its gateway is asked, and can tell\n", "")
	got := r.command("batch", "cancel", "nov", "--why", "wrong", "--yes", "-o", "json")
	if want := `"pending":{"jobs":2,"amount":{"EUR":300},"without_amount":0}`; !strings.Contains(got.out, want) || strings.Contains(got.out, "unknown_outcome") {
		t.Errorf("%+v, want %s", got, want)
	}
}
