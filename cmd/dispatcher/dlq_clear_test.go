package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

const stockPreview = `no filter is given: this means every parked job of all gateways
one: 4 jobs (EUR 92,233,720,368,547,769.57)
  unknown_outcome: 1 job (EUR 0.01)
  refused: 1 job (EUR 10.50)
  waiting for room: 2 jobs (EUR 92,233,720,368,547,759.06)
two: 2 jobs
  unknown_outcome: 1 job
  unreadable: 1 job
would be held back: 1 job: an earlier call may have charged, and the gateway keeps no idempotency keys: look it up, then use "dlq resolve"
would be held back: 1 job: not a job: there is nothing to send
`

const stockMoney = "4 jobs (EUR 92,233,720,368,547,769.57)"

func (r *rig) parked() string {
	r.t.Helper()
	found := ""
	for line := range strings.Lines(r.run("list").out) {
		found += line[:1]
	}
	return found
}

func TestDLQReplayOffATerminalIsADryRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.expect(r.run("replay"), 0, "no parked job is meant: nothing to replay\n", "")
	r.stock()
	would := stockPreview + "dry run: " + stockMoney + " would be replayed; nothing was changed\n"
	r.expect(r.run("replay"), 0, would, "add --yes to do it\n")
	r.expect(r.run("replay", "-q"), 0, would, "")
	r.expect(r.run("replay", "--dry-run", "--yes"), 0, would, "")
	r.expect(r.run("replay", "--reason", "refused", "-o", "json"), 0, `{"jobs":1,"replayed":0,"held_back":0,"gone":0,"dry_run":true,"amount":{"EUR":1050},`+
		`"without_amount":0,"by_reason":{"refused":{"jobs":1,"amount":{"EUR":1050},"without_amount":0}},"held_back_why":{},"replayed_3_times_or_more":0}`+"\n", "")
	if r.parked() != "abcdef" || r.trail(r.one) != "" {
		t.Errorf("parked %s, trail %s", r.parked(), r.trail(r.one))
	}
}

func TestDLQReplay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.expect(r.run("replay", "--yes", "--why", "bank is back", "--reason", "refused"), 0, "replayed 1 job (EUR 10.50)\n",
		"one: 1 job (EUR 10.50)\n  refused: 1 job (EUR 10.50)\n")
	r.expect(r.run("replay", "--yes", "-o", "json"), 0, `{"jobs":5,"replayed":3,"held_back":2,"gone":0,"dry_run":false,"amount":{"EUR":9223372036854775907},`+
		`"without_amount":0,"by_reason":{"rejected":{"jobs":2,"amount":{"EUR":9223372036854775906},"without_amount":0},`+
		`"unknown_outcome":{"jobs":2,"amount":{"EUR":1},"without_amount":0},"unreadable":{"jobs":1,"amount":{},"without_amount":0}},`+
		`"held_back_why":{"an earlier call may have charged, and the gateway keeps no idempotency keys: look it up, then use \"dlq resolve\"":1,`+
		`"not a job: there is nothing to send":1},"replayed_3_times_or_more":0}`+"\n", "")
	r.expect(r.run("replay", "--yes", "-q"), 0, "replayed 0 jobs, held back 2\n"+
		"held back: 1 job: an earlier call may have charged, and the gateway keeps no idempotency keys: look it up, then use \"dlq resolve\"\n"+
		"held back: 1 job: not a job: there is nothing to send\n", "")
	want := `{"at":"TIME","who":"WHO","what":"replay","why":"bank is back","filter":"--reason refused","jobs":1,"amount":{"EUR":1050},"without_amount":0,"ended":"TIME"}
{"at":"TIME","who":"WHO","what":"replay","filter":"","jobs":3,"amount":{"EUR":9223372036854775907},"without_amount":0,"ended":"TIME"}`
	if got := r.trail(r.one); got != want {
		t.Errorf("trail:\n%s\nwant:\n%s", got, want)
	}
	if r.parked() != "ef" || r.trail(r.two) != "" {
		t.Errorf("parked %s, trail of two %q", r.parked(), r.trail(r.two))
	}
	a := r.record(r.one, "a")
	if a.State != job.Queued || a.KeyGeneration != 2 || a.Spent != 0 || r.record(r.one, "d").KeyGeneration != 1 {
		t.Errorf("a: %+v", a)
	}
}

func TestDLQReplayAsksOnATerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	terminal := func(answer string) cli.Streams {
		return cli.Streams{In: strings.NewReader(answer), InTerminal: true, ErrTerminal: true}
	}
	question := stockPreview + "Replay " + stockMoney + "? [y/N] "
	r.expect(r.runWith(terminal("n\n"), "replay"), 0, "nothing was changed\n", question)
	if r.parked() != "abcdef" {
		t.Errorf("parked %s", r.parked())
	}
	got := r.runWith(terminal("y\n"), "replay", "-q")
	r.expect(ran{code: got.code, err: got.err}, 0, "", question)
	if !strings.HasPrefix(got.out, "replayed 4 jobs") || r.parked() != "ef" {
		t.Errorf("%s; parked %s", got.out, r.parked())
	}
}

// slowAnswer is the input of a person who answers late: meanwhile is called first.
type slowAnswer struct {
	meanwhile func()
	io.Reader
}

func (a slowAnswer) Read(p []byte) (int, error) {
	a.meanwhile()
	return a.Reader.Read(p)
}

// After a job whose payload is needed, the jobs are read again, and jobs that are no longer parked are not found. They still count as gone.
func TestDLQReplayCountsWhatHasGoneWhileItWasAskedAbout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	var once sync.Once
	discard := func() { r.run("discard", "--id", "d", "--why", "test", "--yes", "-q", "--may-be-charged") }
	got := r.runWith(cli.Streams{In: slowAnswer{func() { once.Do(discard) }, strings.NewReader("y\n")}, InTerminal: true, ErrTerminal: true}, "replay", "-o", "json")
	if !strings.HasPrefix(got.out, `{"jobs":6,"replayed":3,"held_back":2,"gone":1,`) || r.parked() != "ef" {
		t.Errorf("%s; parked %s", got.out, r.parked())
	}
}

func TestDLQReplayHoldsForgottenKeysBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	longAgo := time.Now().Add(-25 * time.Hour).UnixMicro()
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).Job("d"), "f", longAgo).Err())
	const why = "the gateway has forgotten its idempotency key after 23h59m25s: look it up, or use --expired-keys"
	r.expect(r.run("replay", "--yes", "-q", "--id", "d"), 0, "replayed 0 jobs, held back 1\nheld back: 1 job: "+why+"\n", "")
	r.expect(r.run("replay", "--yes", "-q", "--id", "d", "--expired-keys"), 0, "replayed 1 job (EUR 0.01)\n", "")
	if d := r.record(r.one, "d"); d.KeyGeneration != 1 || d.State != job.Queued {
		t.Errorf("d: %+v", d)
	}
}

func TestDLQDiscard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.expect(r.run("discard", "--why", "test"), 0, strings.SplitAfter(stockPreview, "unreadable: 1 job\n")[0]+
		"would be held back: 2 jobs: "+heldBackDoubt+"\n"+
		"dry run: 4 jobs (EUR 92,233,720,368,547,769.56) would be discarded; nothing was changed\n", "add --yes to do it\n")
	r.expect(r.run("discard", "--why", "test", "--may-be-charged"), 0, strings.SplitAfter(stockPreview, "unreadable: 1 job\n")[0]+
		"dry run: 6 jobs (EUR 92,233,720,368,547,769.57) would be discarded; nothing was changed\n", "add --yes to do it\n")
	r.expect(r.run("discard", "--why", "test", "--yes", "--may-be-charged", "--limit", "5", "-o", "json"), 0, `{"jobs":5,"discarded":5,"held_back":0,"gone":0,"dry_run":false,`+
		`"amount":{"EUR":9223372036854776957},"without_amount":0,"by_reason":{"refused":{"jobs":1,"amount":{"EUR":1050},"without_amount":0},`+
		`"rejected":{"jobs":2,"amount":{"EUR":9223372036854775906},"without_amount":0},`+
		`"unknown_outcome":{"jobs":2,"amount":{"EUR":1},"without_amount":0}},"held_back_why":{},"replayed_3_times_or_more":0}`+"\n", "")
	if r.parked() != "f" || r.record(r.one, "a").State != job.Discarded {
		t.Errorf("parked %s", r.parked())
	}
	if got, want := r.trail(r.two), `{"at":"TIME","who":"WHO","what":"discard","why":"test","filter":"--limit 5 --may-be-charged","jobs":1,"amount":{},"without_amount":0,"ended":"TIME"}`; got != want {
		t.Errorf("trail %s, want %s", got, want)
	}
}

// A discarded job says that its payload is deleted. Its batch still counts its money.
func TestADiscardedJobSaysThatItsPayloadIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.run("discard", "--id", "a", "--why", "test", "--yes", "-q")
	if got := r.command("job", "a", "-g", r.one, "--payload"); !strings.Contains(got.out, "payload\tdeleted when the job was discarded") ||
		!strings.Contains(got.out, "its payload and what the gateway said of it are deleted") || strings.Contains(got.out, "error") {
		t.Errorf("job a --payload:\n%s%s", got.out, got.err)
	}
	if got := r.command("job", "a", "-g", r.one, "--payload", "-o", "json"); !strings.Contains(got.out, `"payload_deleted":true`) || strings.Contains(got.out, `"payload":`) {
		t.Errorf("job a --payload -o json: %s%s", got.out, got.err)
	}
	if got := r.command("job", "d", "-g", r.one, "-o", "json"); strings.Contains(got.out, "payload") {
		t.Errorf("job d, which is parked: %s", got.out)
	}
	if a := r.record(r.one, "a"); a.Money != "1050 EUR" || a.Reason != job.Refused || len(a.History) != 1 {
		t.Errorf("a: %+v", a)
	}
}

// There are more jobs than one script takes. At the end the trail counts all of them.
func TestDLQTrailCountsEveryJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var many []job.Job
	for i := range 450 {
		many = append(many, charge(fmt.Sprint(i), "1", ""))
	}
	r.reject(r.one, many...)
	r.expect(r.run("discard", "--why", "test", "--yes", "-q"), 0, "discarded 450 jobs (EUR 4.50)\n", "")
	if got, want := r.trail(r.one), `{"at":"TIME","who":"WHO","what":"discard","why":"test","filter":"","jobs":450,"amount":{"EUR":450},"without_amount":0,"ended":"TIME"}`; got != want {
		t.Errorf("trail %s, want %s", got, want)
	}
}

func TestDLQResolve(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.expect(r.run("resolve", "--done", "--why", "paid", "--yes", "-g", r.one), 0, "resolved 1 job (EUR 0.01)\n",
		"no filter is given: this means every parked job that may have been charged of one\none: 1 job (EUR 0.01)\n  unknown_outcome: 1 job (EUR 0.01)\n")
	r.expect(r.run("resolve", "--not-done", "--why", "not paid", "--yes", "--id", "e", "-o", "json"), 0, `{"jobs":1,"resolved":1,"held_back":0,"gone":0,`+
		`"dry_run":false,"amount":{},"without_amount":0,"by_reason":{"unknown_outcome":{"jobs":1,"amount":{},"without_amount":0}},"held_back_why":{},"replayed_3_times_or_more":0}`+"\n", "")
	if d := r.record(r.one, "d"); d.State != job.Done || len(d.Job.Payload) > 0 {
		t.Errorf("d: %+v", d)
	}
	if e := r.record(r.two, "e"); e.State != job.Queued || e.KeyGeneration != 2 {
		t.Errorf("e: %+v", e)
	}
	want := `{"at":"TIME","who":"WHO","what":"resolve --not-done","why":"not paid","filter":"--id e","jobs":1,"amount":{},"without_amount":0,"ended":"TIME"}`
	if r.parked() != "abcf" || r.trail(r.two) != want {
		t.Errorf("parked %s, trail %s", r.parked(), r.trail(r.two))
	}
}

func TestDLQExportIsABillingFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	r.reject(r.one, job.Job{ID: "g", Payload: []byte(`{"n":1.50,"h":"<&>"}`), At: expires.Add(-time.Minute), Expires: expires, Batch: "b2"})
	r.must(deadletter.New(r.c, r.two).ParkUnreadable(r.ctx, "k", []byte(`{"n":1,"n":2}`), "foreign"))
	r.must(deadletter.New(r.c, r.two).ParkUnreadable(r.ctx, "l", []byte("{\"n\":\n1}"), "foreign"))
	got := r.run("export")
	r.expect(got, 0, `{"id":"a","gateway":"one","payload":{"amount":1050,"currency":"eur"},"batch":"b1"}
{"id":"b","gateway":"one","payload":{"amount":"99","currency":"eur"},"cost":2,"batch":"b1"}
{"id":"c","gateway":"one","payload":{"amount":9223372036854775807,"currency":"eur"},"cost":2}
{"id":"d","gateway":"one","payload":{"amount":1,"currency":"eur"}}
{"id":"g","gateway":"one","payload":{"n":1.50,"h":"<&>"},"cost":2,"at":"TIME","expires":"TIME","batch":"b2"}
{"id":"e","gateway":"two","payload":{"n":1}}
{"id":"l","gateway":"two","payload":{"n":1}}
`, `left out: job "f" of two: its content is not JSON
left out: job "k" of two: the key "n" stands twice in one object
`)
	var raw bytes.Buffer
	cli.Main(name, newCommand, []string{"dlq", "export", "-c", r.file, "--id", "g", "-o", "json"}, cli.Streams{Out: &raw, Err: &bytes.Buffer{}})
	in, err := producer.New(&raw, producer.Options{Format: producer.NDJSON})
	r.must(err)
	line, err := in.Next()
	r.must(err)
	g := r.record(r.one, "g")
	if line.Err != nil || line.Job.Cost != 2 || !line.Job.At.Equal(g.Job.At) || !line.Job.Expires.Equal(expires) || producer.Digest(line.Job.Payload) != producer.Digest(g.Job.Payload) {
		t.Errorf("read back: %+v, %v", line.Job, line.Err)
	}
}

// childEnv makes TestDLQChild run the command line in a process of its own, which can be interrupted.
const childEnv = "DLQ_CHILD_CONFIG"

func TestDLQChild(*testing.T) {
	if file := os.Getenv(childEnv); file != "" {
		os.Exit(cli.Main(name, newCommand, []string{"dlq", "replay", "--yes", "-q", "-c", file}, cli.Standard()))
	}
}

func TestDLQReplayInterruptedSaysHowFarItGotAndGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	text, err := os.ReadFile(r.file)
	r.must(err)
	slow := strings.ReplaceAll(string(text), "[100/s]}", "[1/h]}\n    admission: {limits: [1/h], burst: 5}")
	r.must(os.WriteFile(r.file, []byte(slow), 0o600))
	var jobs []job.Job
	for i := range 4 {
		jobs = append(jobs, charge(fmt.Sprint(i), "10", ""))
	}
	r.reject(r.one, jobs...) // of cost 2: there is room for two of them
	var out, errOut bytes.Buffer
	child := exec.Command(os.Args[0], "-test.run=^TestDLQChild$")
	child.Env = append(os.Environ(), childEnv+"="+r.file, "GORACE=atexit_sleep_ms=0")
	child.Stdout, child.Stderr = &out, &errOut
	r.must(testkit.Start(child))
	testkit.Eventually(t, 10*time.Second, "two jobs to be replayed", func() bool {
		return r.c.LLen(r.ctx, redisdb.NewKeys(r.one).Pending()).Val() == 2
	})
	r.must(child.Process.Signal(syscall.SIGINT))
	_ = child.Wait()
	r.expect(ran{r.tidy(out.String()), r.tidy(errOut.String()), child.ProcessState.ExitCode()}, 130, "replayed 2 jobs (EUR 0.20)\n",
		"dispatcher: 2 of 4 jobs replayed: interrupted\nhint: run the same again: that is safe, it goes on with the jobs that are still parked\n")
	if got, want := r.trail(r.one), `{"at":"TIME","who":"WHO","what":"replay","filter":"","jobs":2,"amount":{"EUR":20},"without_amount":0,"ended":"TIME"}`; got != want {
		t.Errorf("trail %s, want %s", got, want)
	}
	r.configure(r.url)
	r.must(r.c.Del(r.ctx, redisdb.NewKeys(r.one).Admission()).Err())
	r.expect(r.run("replay", "--yes", "-q"), 0, "replayed 2 jobs (EUR 0.20)\n", "")
}

// The output names a job that was replayed three times and is parked again.
func TestDLQReplaySaysWhatWasReplayedInVain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(r.one, charge("a", "1050", ""), job.Refused, 402, "HTTP 402")
	r.park(r.one, charge("b", "1", ""), job.Refused, 402, "HTTP 402")
	for i := range 3 {
		r.expect(r.run("replay", "--yes", "-q", "--id", "a"), 0, "replayed 1 job (EUR 10.50)\n", "")
		r.again(r.one, "a")
		if got := r.record(r.one, "a"); got.Replays != i+1 || got.State != job.Parked {
			t.Errorf("after replay %d: %+v", i+1, got)
		}
	}
	preview := "no filter is given: this means every parked job of all gateways\none: 2 jobs (EUR 10.51)\n" +
		"  refused: 2 jobs (EUR 10.51)\n1 of them has been replayed 3 times or more without success\n"
	r.expect(r.run("replay", "--dry-run"), 0, preview+"dry run: 2 jobs (EUR 10.51) would be replayed; nothing was changed\n", "")
	if got := r.run("replay", "-o", "json"); !strings.Contains(got.out, `"replayed_3_times_or_more":1`) {
		t.Errorf("%s", got.out)
	}
	r.expect(r.run("list"), 0, "b	one	refused	1	0	TIME		HTTP 402\na	one	refused	1	3 in vain	TIME		HTTP 402\n", "")
}
