package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

const (
	again    = "that is safe, jobs that are in already are counted as duplicate"
	unusable = "hint: mend them and enqueue them again; --rejects FILE collects them\n"
)

func TestTwiceOnTheSameFileChangesNothing(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", lines("a", 1200))
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json"), result{0, counts(1200, 1200, 0, 0, 0, 0), ""})
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json"), result{0, counts(1200, 0, 0, 1200, 0, 0), ""})
	if got := b.queued(b.g); len(got) != 1200 {
		t.Errorf("%d jobs are queued", len(got))
	}
}

func TestTextReport(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", lines("a", 2))
	b.want(b.run("-g", b.g, "-f", "a.ndjson"), result{0,
		"read\t2\nenqueued\t2\nwaiting for room\t0\nduplicate\t0\ninvalid\t0\nfailed\t0\nseconds\tN\njobs per second\tN\n", ""})
}

func TestEverythingOfALineAndTheFlagsArrives(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", `{"id":"own","payload": {"x": 1.50},"gateway":"`+b.g2+`","cost":2,"at":"2099-01-02T00:00:00Z","expires":"2099-01-03T00:00:00Z","batch":"mine"}`+
		"\n"+`{"id":"flags"}`)
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--batch", "2026-11", "--at", "2098-01-02T00:00:00Z", "--expires", "2098-01-03"),
		result{0, counts(2, 2, 0, 0, 0, 0), "--expires is 2098-01-03 00:00 " + time.Date(2098, 1, 3, 0, 0, 0, 0, time.Local).Format("MST") + "\n"})
	own := b.record(b.g2, "own")
	if own.State != job.Scheduled || string(own.Job.Payload) != `{"x":1.50}` || own.Job.Cost != 2 || own.Job.Batch != "mine" ||
		own.Job.At.Year() != 2099 || own.Job.Expires.Year() != 2099 {
		t.Errorf("own: %+v", own)
	}
	flagged := b.record(b.g, "flags")
	if flagged.State != job.Scheduled || string(flagged.Job.Payload) != `{}` || flagged.Job.Cost != 1 || flagged.Job.Batch != "2026-11" ||
		!flagged.Job.At.Equal(time.Date(2098, 1, 2, 0, 0, 0, 0, time.UTC)) || !flagged.Job.Expires.Equal(time.Date(2098, 1, 3, 0, 0, 0, 0, time.Local)) {
		t.Errorf("flags: %+v", flagged)
	}
}

func TestOrderOfTheFileIsKeptPerGateway(t *testing.T) {
	b := setup(t, place{})
	var s strings.Builder
	for i := range 2600 {
		fmt.Fprintf(&s, "{\"id\":\"%06d\",\"gateway\":%q}\n", i, []string{b.g, b.g2}[i%2])
	}
	b.stdin = strings.NewReader(s.String())
	b.want(b.run("-f", "-", "-o", "json"), result{0, counts(2600, 2600, 0, 0, 0, 0), ""})
	for _, g := range []string{b.g, b.g2} {
		ids := b.queued(g)
		if len(ids) != 1300 {
			t.Errorf("%d queued", len(ids))
		}
		for i := 1; i < len(ids); i++ {
			if ids[i-1] >= ids[i] {
				t.Fatalf("%s goes before %s", ids[i-1], ids[i])
			}
		}
	}
}

func TestOnFull(t *testing.T) {
	b := setup(t, place{burst: 3, limit: "1/h"})
	b.write("a.ndjson", lines("a", 5))
	noRoom := "enqueue: gateway G has no room for all of them: stopped\n" +
		"hint: there may be room in "
	got := b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--on-full", "fail")
	if !strings.HasPrefix(got.err, noRoom) || !strings.HasSuffix(got.err, ", then run the same again ("+again+"), or use --on-full park or wait\n") {
		t.Errorf("standard error %s", got.err)
	}
	got.err = ""
	b.want(got, result{3, counts(5, 3, 0, 0, 0, 2), ""})
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json"), result{0, counts(5, 0, 2, 3, 0, 0),
		"2 jobs wait for room, or for their paused or cancelled batch; see: dispatcher status\n"})
	b.write("b.ndjson", lines("b", 1))
	b.want(b.run("-g", b.g, "-f", "b.ndjson", "-o", "json", "--on-full", "park", "-q"), result{0, counts(1, 0, 1, 0, 0, 0), ""})
}

func TestOnFullWaitsForRoom(t *testing.T) {
	b := setup(t, place{burst: 3, limit: "100/s"})
	b.write("a.ndjson", lines("a", 23))
	start := time.Now()
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--on-full", "wait"), result{0, counts(23, 23, 0, 0, 0, 0), ""})
	if took := time.Since(start); took < 190*time.Millisecond {
		t.Errorf("20 jobs at 100/s found room within %v", took)
	}
}

func TestBadLinesAreReportedRejectedAndTheRestGoesOn(t *testing.T) {
	b := setup(t, place{burst: 10})
	huge := strings.Repeat("x", 3<<20)
	bad := []struct{ line, says string }{
		{`{"id":"a"`, "not JSON: the line ends where a comma or '}' is expected"},
		{`{"payload":{}}`, "no id: each job needs one, so that it is never charged twice"},
		{`{"id":"a b"}`, "the id has the character ' ' at place 2: only visible ASCII without spaces is allowed"},
		{`{"id":"a","gateway":"nobody"}`, `no gateway "nobody" is configured`},
		{`{"id":"a","cost":0}`, "cost must be a whole number of at least 1"},
		{`{"id":"a","cost":11}`, "cost 11 is more than 10, the most that a limit of gateway G can ever grant"},
		{huge, "the line is longer than 1048576 bytes, the most that a job may have"},
		{"{\"id\":\"\xff\"}", "byte 8 is not UTF-8: convert the file, as with iconv -t UTF-8"},
		{`{"id":"a","amonut":1}`, `unknown key "amonut": known are id, payload, gateway, route, lane, priority, cost, at, expires and batch; where the line itself is the payload, name its id with --id-field`},
		{`{"id":"a","payload":{"amount":1,"amount":2}}`, `the key "amount" stands twice in one object`},
		{`{"id":"a","payload":[]}`, `payload must be an object, as in {"amount":1050}`},
	}
	var file, rejects, says strings.Builder
	for i, l := range bad {
		fmt.Fprintf(&file, "%s\n\n", l.line)
		fmt.Fprintf(&rejects, "%s\n", l.line)
		fmt.Fprintf(&says, "line %d: %s\n", 2*i+1, l.says)
	}
	file.WriteString(`{"id":"good"}`)
	b.write("a.ndjson", file.String())
	b.write("bad.ndjson", "left over from the last run\n")
	fmt.Fprintf(&says, "enqueue: 11 of 12 lines could not be used\nhint: mend them in bad.ndjson and enqueue that\n")
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--rejects", "bad.ndjson"), result{3, counts(12, 1, 0, 0, 11, 0), says.String()})
	if b.read("bad.ndjson") != rejects.String() {
		t.Error("the rejects are not the bad lines as they were")
	}
	if got := b.queued(b.g); len(got) != 1 {
		t.Errorf("queued: %v", got)
	}
}

func TestSameIDWithAnotherPayload(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", "{\"id\":\"a\",\"payload\":{\"x\":1,\"y\":2}}\n{\"id\":\"a\",\"payload\":{\"y\":2, \"x\":1}}\n{\"id\":\"a\",\"payload\":{\"x\":1}}")
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--rejects", "bad"), result{3, counts(3, 1, 0, 1, 1, 0),
		"line 3: this id is known with another payload: the first one stands; \"enqueue --replace\" corrects a parked job, and another payment needs an id of its own\n" +
			"enqueue: 1 of 3 lines could not be used\nhint: mend them in bad and enqueue that\n"})
	if got := b.read("bad"); got != "{\"id\":\"a\",\"payload\":{\"x\":1}}\n" {
		t.Errorf("rejects: %q", got)
	}
	if got := string(b.record(b.g, "a").Job.Payload); got != `{"x":1,"y":2}` {
		t.Errorf("payload: %s", got)
	}
}

func TestCSVRejectsCanBeMendedAndEnqueued(t *testing.T) {
	b := setup(t, place{})
	b.write("a.csv", "invoice,memo\r\ni-1,\"two\nlines\"\r\ni-2\r\ni-3,5\" pipe\r\n")
	b.want(b.run("-g", b.g, "-f", "a.csv", "--id-field", "invoice", "--rejects", "bad.csv", "-o", "json"), result{3, counts(3, 1, 0, 0, 2, 0),
		"line 4: has 1 fields, but the header row has 2\n" +
			"line 5: field 2 (\"memo\") has a quote within, but does not start with one: put the field in quotes and write the quote twice\n" +
			"enqueue: 2 of 3 lines could not be used\nhint: mend them in bad.csv and enqueue that\n"})
	if got := b.read("bad.csv"); got != "invoice,memo\r\ni-2\r\ni-3,5\" pipe\r\n" {
		t.Errorf("rejects: %q", got)
	}
	if got := string(b.record(b.g, "i-1").Job.Payload); got != `{"invoice":"i-1","memo":"two\nlines"}` {
		t.Errorf("payload: %s", got)
	}
	b.write("bad.csv", strings.NewReplacer("i-2", "i-2,x", `5" pipe`, `"5"" pipe"`).Replace(b.read("bad.csv")))
	b.write("worse.csv", "left over from the last run\n")
	b.want(b.run("-g", "nobody", "-f", "bad.csv", "--id-field", "invoice", "--rejects", "worse.csv"), result{4, "",
		"enqueue: no gateway \"nobody\" in dispatcher.yaml\nhint: it has: G, " + b.g2 + "\n"})
	if got := b.read("worse.csv"); got == "" {
		t.Error("a run that never began has emptied the rejects of the last one")
	}
	b.want(b.run("-g", b.g, "-f", "bad.csv", "--id-field", "invoice", "--rejects", "worse.csv", "-o", "json"), result{0, counts(2, 2, 0, 0, 0, 0), ""})
	if got := b.read("worse.csv"); got != "" {
		t.Errorf("rejects: %q", got)
	}
}

func TestIDFieldOnStandardInput(t *testing.T) {
	b := setup(t, place{})
	b.stdin = strings.NewReader("{\"invoice\":17,\"amount\":10}\n{\"invoice\":null}\n")
	b.want(b.run("-g", b.g, "-f", "-", "--id-field", "invoice", "--format", "ndjson", "-o", "json"), result{3, counts(2, 1, 0, 0, 1, 0),
		"line 2: no id: the field \"invoice\" is missing, null or empty\nenqueue: 1 of 2 lines could not be used\n" + unusable})
	if got := string(b.record(b.g, "17").Job.Payload); got != `{"invoice":17,"amount":10}` {
		t.Errorf("payload: %s", got)
	}
}

// If the rejects can't be written, the exit code is 1: exit code 3 would mean that the file has all invalid lines.
func TestRejectsThatCantBeWrittenAreAFailure(t *testing.T) {
	b := setup(t, place{})
	const full = "enqueue: can't write --rejects: write /dev/full: no space left on device\n"
	const room = "hint: make room or name another file, and run again: that is safe, jobs that are in already are counted as duplicate\n"
	b.write("few.ndjson", lines("a", 2)+"bad\n")
	b.want(b.run("-g", b.g, "-f", "few.ndjson", "--rejects", "/dev/full", "-o", "json"), result{1, counts(3, 2, 0, 0, 1, 0),
		"line 3: not a JSON object\n" + full + "enqueue: 1 of 3 lines could not be used\n" + room})
	b.write("many.ndjson", strings.Repeat("bad\n", 5000)) // more than a buffer takes
	if got := b.run("-g", b.g, "-f", "many.ndjson", "--rejects", "/dev/full"); got.code != 1 || strings.Count(got.err, full) != 1 || strings.Count(got.err, room) != 1 {
		t.Errorf("exit code %d, %s", got.code, got.err[max(0, len(got.err)-500):])
	}
}

// Standard input has no name that ends in .csv, so the error only suggests that it is CSV.
func TestCSVOnStandardInputIsGuessedAt(t *testing.T) {
	b := setup(t, place{})
	bad := "line 1: not a JSON object\nline 2: not a JSON object\nenqueue: 2 of 2 lines could not be used\n"
	b.stdin = strings.NewReader("invoice,amount\n17,10\n")
	b.want(b.run("-g", b.g, "-f", "-", "--id-field", "invoice", "-o", "json"), result{3, counts(2, 0, 0, 0, 2, 0),
		bad + "hint: this looks like CSV: say --format csv, and with --id-field which column is the id\n"})
	b.stdin = strings.NewReader("invoice,amount\n17,10\n")
	b.want(b.run("-g", b.g, "-f", "-", "--id-field", "invoice", "--format", "ndjson", "-o", "json"), result{3, counts(2, 0, 0, 0, 2, 0), bad + unusable})
}

func TestDryRunNeedsNoRedis(t *testing.T) {
	b := setup(t, place{redis: fmt.Sprintf("redis://127.0.0.1:%d/0", testkit.FreePort(t))})
	b.write("a.ndjson", lines("a", 3)+"bad\n")
	dry := "line 4: not a JSON object\ndry run: nothing was sent to Redis\nenqueue: 1 of 4 lines could not be used\n" + unusable
	want := strings.Replace(counts(4, 0, 0, 0, 1, 3), "}\n", ",\"dry_run\":true,\"usable\":3,\"amount\":{\"EUR\":6},\"without_amount\":0}\n", 1)
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "--dry-run", "-o", "json"), result{3, want, dry})
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "--dry-run"), result{3,
		"read\t4\nusable\t3\ninvalid\t1\nmoney\tEUR 0.06\nseconds\tN\njobs per second\tN\n", dry})
}

func TestAskedWrongly(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", lines("a", 1))
	b.write("a.csv", "id\na\n")
	b.write("a.gz", "\x1f\x8b\x08\x00")
	b.write("bad.yaml", "gatewaze: {}\n")
	good := []string{"-g", b.g, "-f", "a.ndjson"}
	cases := []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"-g", b.g}, 2, "no file is named\nhint: name the billing file: -f november.ndjson, or -f - for standard input"},
		{[]string{"-g", b.g, "-f", "nope"}, 2, "can't read nope: no such file or directory\nhint: check the path given to -f; -f - reads standard input"},
		{[]string{"-g", b.g, "-f", "."}, 2, "can't read .: it is a directory\nhint: check the path given to -f; -f - reads standard input"},
		{[]string{"-g", b.g, "-f", "a.gz"}, 2, "the file is compressed\nhint: unpack it first, as in: gunzip -c november.ndjson.gz | enqueue -f -"},
		{[]string{"-g", b.g, "-f", "a.csv"}, 2, "a CSV file needs --id-field\nhint: name the column of the id: --id-field invoice"},
		{[]string{"-f", "a.csv", "--id-field", "id"}, 2, "with --id-field the lines can't name their gateway\nhint: name the gateway: -g stripe"},
		{[]string{"-g", b.g, "-f", "a.csv", "--id-field", "x"}, 2, "line 1: the header row: no column is named \"x\", as --id-field says\nhint: the columns are \"id\""},
		{append([]string{"--format", "xml"}, good...), 2, "invalid argument \"xml\" for \"--format\" flag: must be one of ndjson, csv\nhint: see \"enqueue --help\""},
		{append([]string{"--on-full", "x"}, good...), 2, "invalid argument \"x\" for \"--on-full\" flag: must be one of park, wait, fail\nhint: see \"enqueue --help\""},
		{append([]string{"--at", "noon"}, good...), 2, "\"noon\" is not a time\nhint: write 2026-11-30T18:00:00Z, \"2026-11-30 18:00\", 2026-11-30, or from now on +90m or +2d; without a zone it is local time"},
		{append([]string{"--at", "+2h", "--expires", "+1h"}, good...), 2, "the jobs would expire before they may be sent\nhint: let --expires be later than --at"},
		{append([]string{"--expect-count", "many"}, good...), 2, "--expect-count \"many\" is not a whole number\nhint: write digits alone; amounts are in minor units: 12345 for 123.45"},
		{append([]string{"--expect-sum", "1.50"}, good...), 2, "--expect-sum \"1.50\" is not a whole number\nhint: write digits alone; amounts are in minor units: 12345 for 123.45"},
		{append([]string{"--rejects", "a.ndjson"}, good...), 2, "--rejects would write over the billing file itself\nhint: name another file"},
		{append([]string{"--redis", "embedded"}, good...), 2, "the embedded Redis lives in the dispatcher's process and is gone with it: enqueue can't reach it\nhint: name a Redis server: --redis redis://127.0.0.1:6379/0"},
		{append([]string{"more"}, good...), 2, "unexpected argument \"more\"\nhint: name one file, with -f; several can come one after the other: cat november-*.ndjson | enqueue -f -"},
		{append([]string{"-f", "b.ndjson"}, good...), 2, "invalid argument \"a.ndjson\" for \"-f, --file\" flag: it was given already, as \"b.ndjson\"\nhint: see \"enqueue --help\""},
		{append([]string{"--expect-count", "-1"}, good...), 2, "--expect-count -1 is not a number of jobs\nhint: give the number of usable jobs in the file"},
		{append([]string{"--batch", "a\tb"}, good...), 2, "the batch's name has the character '\\t', which can't be printed\nhint: choose another name for --batch"},
		{append([]string{"--batch", "a\xffb"}, good...), 2, "the batch's name \"a\\xffb\" is not UTF-8\nhint: choose another name for --batch"},
		{[]string{"-g", "Nobody", "-f", "a.ndjson"}, 2, "\"Nobody\" is not a gateway's name: use lower-case letters, digits, _ and -, starting with a letter or digit"},
		{[]string{"-g", "nobody", "-f", "a.ndjson"}, 4, "no gateway \"nobody\" in dispatcher.yaml\nhint: it has: G, " + b.g2},
	}
	for _, c := range cases {
		b.want(b.run(c.args...), result{c.code, "", "enqueue: " + c.err + "\n"})
	}
	got := b.run(append([]string{"-c", "bad.yaml"}, good...)...)
	if got.code != 2 || !strings.HasPrefix(got.err, "enqueue: bad.yaml:1:") || got.out != "" {
		t.Errorf("bad.yaml: %+v", got)
	}
	if got := b.read("a.ndjson"); got != lines("a", 1) {
		t.Errorf("the billing file is now %q", got)
	}
}

func TestHelpHasExamplesAndExitCodes(t *testing.T) {
	b := setup(t, place{})
	if got := b.run("--help"); got.code != 0 || !strings.Contains(got.out, example) || got.err != "" {
		t.Errorf("%+v", got)
	}
	if got := b.run("help", "exit-codes"); got.code != 0 || !strings.Contains(got.out, cli.ExitCodesHelp()) {
		t.Errorf("%+v", got)
	}
}

func TestRedisAwayFromTheStart(t *testing.T) {
	b := setup(t, place{redis: fmt.Sprintf("redis://127.0.0.1:%d/0", testkit.FreePort(t))})
	b.write("a.ndjson", lines("a", 3))
	got := b.run("-g", b.g, "-f", "a.ndjson", "-o", "json")
	if !strings.HasPrefix(got.err, "waiting for Redis, for 300ms at most: ") || !strings.Contains(got.err, "is away; nothing had been enqueued: ") ||
		!strings.HasSuffix(got.err, "\nhint: run the same again: "+again+"\n") || strings.Count(got.err, "\n") != 3 {
		t.Errorf("standard error %s", got.err)
	}
	got.err = ""
	b.want(got, result{5, counts(0, 0, 0, 0, 0, 0), ""})
}

func TestRedisGoesAwayHalfWay(t *testing.T) {
	server := testkit.Server(t)
	b := setup(t, place{redis: server.URL()})
	w := b.pipe()
	b.during = func(*os.Process) {
		_, _ = io.WriteString(w, lines("a", 500))
		awaitQueued(t, server, b.g, 500)
		server.Kill()
		_, _ = io.WriteString(w, lines("b", 500))
		_ = w.Close()
	}
	got := b.run("-g", b.g, "-f", "-", "-o", "json")
	if !strings.HasPrefix(got.err, "enqueue: Redis can't take jobs in now; of 1000 lines read so far 500 are in, and 500 more may or may not be: ") ||
		!strings.HasSuffix(got.err, "\nhint: run the same again: "+again+"\n") {
		t.Errorf("standard error %s", got.err)
	}
	got.err = ""
	b.want(got, result{5, counts(1000, 500, 0, 0, 0, 500), ""})
}

func TestInterrupted(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			server := testkit.Server(t)
			b := setup(t, place{redis: server.URL()})
			w := b.pipe() // it ends although its input stays open
			b.during = func(p *os.Process) {
				_, _ = io.WriteString(w, lines("a", 500))
				awaitQueued(t, server, b.g, 500)
				_ = p.Signal(sig)
			}
			got := b.run("-g", b.g, "-f", "-", "-o", "json")
			b.want(got, result{130, counts(500, 500, 0, 0, 0, 0),
				"enqueue: interrupted; of 500 lines read so far 500 are in, and 0 more may or may not be\nhint: run the same again: " + again + "\n"})
		})
	}
}

func awaitQueued(t *testing.T, server *testkit.RedisServer, gateway string, n int64) {
	t.Helper()
	c := server.Client()
	testkit.Eventually(t, 10*time.Second, "the first chunk to be queued", func() bool {
		return c.LLen(t.Context(), redisdb.NewKeys(gateway).Pending()).Val() == n
	})
}

func TestInputThatBreaksOff(t *testing.T) {
	b := setup(t, place{})
	dir, err := os.Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	b.stdin = dir
	b.want(b.run("-g", b.g, "-f", "-", "-o", "json"), result{1, counts(0, 0, 0, 0, 0, 0),
		"enqueue: the input broke off: read /dev/stdin: is a directory\n" +
			"hint: mend it and run again: jobs that are in already are counted as duplicate\n"})
}
