package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

func TestDLQList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.expect(r.run("list"), 0, "", "")
	r.stock()
	r.expect(r.run("list"), 0, `a	one	refused	1	0	TIME	b1	HTTP 402: {"error":"card <declined>"}
b	one	rejected	0	0	TIME	b1	no room at admission
c	one	rejected	0	0	TIME		no room at admission
d	one	unknown_outcome	1	0	TIME		timed out
e	two	unknown_outcome	1	0	TIME		timed out
f	two	unreadable	0	0	TIME		foreign
`, "")
	r.expect(r.run("list", "--reason", "refused", "-o", "json"), 0,
		`{"id":"a","gateway":"one","reason":"refused","error":"HTTP 402: {\"error\":\"card <declined>\"}","attempts":1,"parked_at":"TIME","batch":"b1","replays":0,"cursor":"one/STAMP"}`+"\n", "")
	r.expect(r.run("list", "-o", "json", "--payload", "--id", "f", "--id", "b"), 0,
		`{"id":"b","gateway":"one","reason":"rejected","error":"no room at admission","attempts":0,"parked_at":"TIME","batch":"b1","replays":0,"cursor":"one/STAMP","payload":{"amount":"99","currency":"eur"}}
{"id":"f","gateway":"two","reason":"unreadable","error":"foreign","attempts":0,"parked_at":"TIME","batch":"","replays":0,"cursor":"two/STAMP","payload":"hello"}
`, "")
	got := r.runWith(cli.Streams{OutTerminal: true}, "list", "--batch", "b1", "--match", "room")
	want := regexp.MustCompile(`^ID GATEWAY REASON ATTEMPTS REPLAYS PARKED BATCH ERROR\nb one waiting for room 0 0 (now|[\dms.]+ ago) b1 no room at admission\n$`)
	if !want.MatchString(squeeze(got.out)) {
		t.Errorf("on a terminal:\n%s\nwant:\n%s", got.out, want)
	}
}

// The pages lead from one gateway to the next, also if the last job of each page is discarded before the next page is read.
func TestDLQPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.expect(r.run("list", "--limit", "1"), 0, "a	one	refused	1	0	TIME	b1	HTTP 402: {\"error\":\"card <declined>\"}\n", "there may be more: add --after one/STAMP\n")
	found, after := "", []string{}
	for range 5 {
		var out, errOut bytes.Buffer
		args := append([]string{"dlq", "-c", r.file, "list", "--limit", "2", "-o", "json"}, after...)
		if code := cli.Main(name, newCommand, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errOut}); code != 0 {
			t.Fatalf("exit code %d: %s", code, &errOut)
		}
		var last desk.Parked
		for line := range strings.Lines(out.String()) {
			r.must(json.Unmarshal([]byte(line), &last))
			found += last.ID
		}
		if last.ID == "" {
			break
		}
		after = []string{"--after", last.Cursor}
		r.run("discard", "--id", last.ID, "--yes", "--why", "paged")
	}
	want := "abcdef"
	if found != want {
		t.Errorf("found %q page by page, want %q", found, want)
	}
	for cursor, why := range map[string]string{"one": "is not a cursor", "/7": "is not a cursor", r.one + "/-1": "is not a cursor", "nobody/7": "is of a gateway that is not among them"} {
		if got := r.run("list", "--after", cursor); got.code != 2 || !strings.Contains(got.err, why) {
			t.Errorf("--after %s: exit code %d, %s", cursor, got.code, got.err)
		}
	}
}

// squeeze replaces runs of spaces with one space: the real names of the gateways are longer than those shown here.
func squeeze(text string) string {
	for strings.Contains(text, "  ") {
		text = strings.ReplaceAll(text, "  ", " ")
	}
	return text
}

func TestDLQFilters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	at := func(id string) string { return r.record(r.one, id).ParkedAt.Format("2006-01-02T15:04:05.999999Z07:00") }
	for _, c := range []struct{ flags, want string }{
		{"", "abcdef"},
		{"-g " + r.two, "ef"},
		{"-g " + r.two + " -g " + r.one, "abcdef"},
		{"--reason rejected --reason unreadable", "bcf"},
		{"--batch b1", "ab"},
		{"--since 1h", "abcdef"},
		{"--since 2d --until 1d", ""},
		{"--since -1h", "abcdef"},
		{"--until 1h", ""},
		{"--since " + at("c"), "cdef"},
		{"--until " + at("c"), "ab"},
		{"--id a --id e", "ae"},
		{"--match ^timed", "de"},
		{"--limit 2", "ab"},
		{"--limit 5", "abcde"},
		{"--reason unknown_outcome --limit 1 -g " + r.two, "e"},
	} {
		got := r.run(append([]string{"list"}, strings.Fields(c.flags)...)...)
		found := ""
		for line := range strings.Lines(got.out) {
			found += line[:1]
		}
		if found != c.want || got.code != 0 {
			t.Errorf("%s: found %q, exit code %d, want %q; %s", r.tidy(c.flags), found, got.code, c.want, got.err)
		}
	}
}

func TestDLQAskedWrongly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"list --reason broke", 2, `--reason "broke" is not a reason`},
		{"list --match (", 2, "--match: error parsing regexp: missing closing )"},
		{"list --since yesterday", 2, `--since "yesterday" is not a time`},
		{"list --until 10", 2, `--until "10" is not a time`},
		{"list --since 1h --until 2h", 2, "no job was parked at or after"},
		{"list --limit 0", 2, "--limit 0 is too few"},
		{"list --limit -1", 2, "--limit -1 is too few"},
		{"replay a", 2, "name jobs by their id with --id a"},
		{"list -g nobody", 4, `no gateway "nobody"`},
		{"list --id nobody", 4, `no job "nobody"`},
		{"stats --id nobody", 4, `no job "nobody"`},
		{"export --id nobody", 4, `no job "nobody"`},
		{"replay --id nobody --yes", 4, `no job "nobody"`},
		{"discard --id nobody --yes --why x", 4, `no job "nobody"`},
		{"list --batch 2026-13", 4, `no batch "2026-13"`},
		{"stats --batch 2026-13", 4, `no batch "2026-13"`},
		{"export --batch 2026-13 -o json", 4, `no batch "2026-13"`},
		{"replay --batch 2026-13 --yes", 4, `no batch "2026-13"`},
		{"discard --batch 2026-13 --yes --why x", 4, `no batch "2026-13"`},
		{"resolve --batch 2026-13 --done --why x", 4, `no batch "2026-13"`},
		{"replay --id a --reason rejected", 4, `job "a" is parked as refused at one, and the other flags leave it out`},
		{"resolve --done --why x --id a --until 2d", 4, `job "a" is parked as refused at one`},
		{"show nobody", 4, `no job "nobody"`},
		{"show", 2, "dispatcher: an argument is missing"},
		{"show a b", 2, `dispatcher: "b" is too much`},
		{"nonsense", 2, `unknown command "nonsense"`},
		{"discard --yes", 2, "a discard needs a reason"},
		{"resolve --done --yes", 2, "a resolve needs a reason"},
		{"resolve --why x", 2, "needs one of --done, --not-done and --ask"},
		{"resolve --why x --done --not-done", 2, "needs one of --done, --not-done and --ask"},
		{"resolve --why x --done --reason nonsense", 2, "is not a reason"},
		{"resolve --why x --not-done --id d --reference ch_1", 2, "--reference is of the payment of one job that is done"},
		{"resolve --why x --done --reference ch_1", 2, "--reference is of the payment of one job that is done"},
		{"resolve --why x --done --id d --id e --reference ch_1", 2, "--reference is of the payment of one job that is done"},
		{"resolve --why x --done --id d --reference chä1", 2, "visible ASCII"},
		{"resolve --why x --done --id d --reference " + strings.Repeat("c", 101), 2, "1 to 100 visible ASCII"},
		{"discard --why " + strings.Repeat("w", 501), 2, "--why has more than 500 bytes"},
		{"replay --rate 50", 2, `--rate "50" is not a limit`},
		{"replay --rate 0/s", 2, `--rate "0/s" lets no call through`},
		{"replay --rate -5/s", 2, `--rate "-5/s" is not a limit`},
		{"replay --rate 5/x", 2, `--rate "5/x" is not a limit`},
		{"replay --rate=", 2, `--rate "" is not a limit`},
		{"replay --share 0%", 2, "--share 0% is not a part of the gateway's limits"},
		{"replay --share -1%", 2, "--share -1% is not a part of the gateway's limits"},
		{"replay --share 101%", 2, "--share 101% is not a part of the gateway's limits"},
		{"replay --share 0.2", 2, `--share "0.2" is not a percentage`},
		{"replay --share NaN%", 2, `--share "NaN%" is not a percentage`},
		{"replay --share=", 2, `--share "" is not a percentage`},
		{"replay --share 20% --rate 5/s", 2, "--rate and --share both say how fast the jobs go in"},
		{"replay --canary 0", 2, "--canary 0 is too few"},
		{"replay --canary -3", 2, "--canary -3 is too few"},
		{"discard --why x --rate 5/s", 2, "unknown flag: --rate"},
	} {
		got := r.run(strings.Fields(c.args)...)
		if got.code != c.code || got.out != "" || !strings.Contains(got.err, c.want) || !strings.Contains(got.err, "hint: ") {
			t.Errorf("%s: exit code %d, standard output %q, standard error %q; want %d, nothing, %q and a hint", c.args, got.code, got.out, got.err, c.code, c.want)
		}
	}
	if got := r.run("discard", "--yes", "--why", " "); got.code != 2 || !strings.Contains(got.err, "a discard needs a reason") {
		t.Errorf("a reason of nothing: %+v", got)
	}
	for _, flag := range []string{"--batch", "--since", "--until", "--match", "--id"} {
		got := r.run("discard", "--yes", "--why", "x", flag, "")
		if got.code != 2 || !strings.Contains(got.err, flag+" is empty") {
			t.Errorf("an unset variable in %s: exit code %d, %q", flag, got.code, got.err)
		}
	}
	r.expect(r.run("stats", "-q", "--id", "a", "--id", "nobody"), 0, "one	refused	1	TIME	EUR 1050\none	total	1	TIME	EUR 1050\n", "")
	r.expect(r.run("stats", "--id", "a", "--id", "nobody"), 0, "one	refused	1	TIME	EUR 1050\none	total	1	TIME	EUR 1050\n", "left out: no job \"nobody\"\n")
}

func TestDLQWithRedisAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := testkit.Server(t)
	s.Kill()
	r.configure(s.URL())
	if got := r.run("stats"); got.code != 5 || got.out != "" || !strings.Contains(got.err, "hint: ") {
		t.Errorf("exit code %d, %q, %q", got.code, got.out, got.err)
	}
}

func TestDLQStats(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.expect(r.run("stats", "-o", "json"), 0, `{"gateways":[{"gateway":"one","total":0,"oldest":null,"amount":{},"without_amount":0,"by_reason":{}},`+
		`{"gateway":"two","total":0,"oldest":null,"amount":{},"without_amount":0,"by_reason":{}}]}`+"\n", "")
	r.stock()
	r.reject(r.one, charge("g", "12.50", ""), job.Job{ID: "h", Payload: []byte(`{"amount":7}`)}, charge("i", "9223372036854775807", ""),
		job.Job{ID: "j", Payload: []byte(`{"amount":-7,"currency":"USD"}`)})
	r.expect(r.run("stats"), 0, `one	unknown_outcome	1	TIME	EUR 1
one	refused	1	TIME	EUR 1050
one	total	2	TIME	EUR 1051
one	waiting for room	6	TIME	EUR 99, USD -7, 4 jobs without an amount
two	unknown_outcome	1	TIME	
two	unreadable	1	TIME	
two	total	2	TIME	
`, "")
	r.expect(r.run("stats", "-o", "json"), 0, `{"gateways":[{"gateway":"one","total":8,"oldest":"TIME","amount":{"EUR":1150,"USD":-7},"without_amount":4,"by_reason":{`+
		`"refused":{"jobs":1,"oldest":"TIME","amount":{"EUR":1050},"without_amount":0},`+
		`"rejected":{"jobs":6,"oldest":"TIME","amount":{"EUR":99,"USD":-7},"without_amount":4},`+
		`"unknown_outcome":{"jobs":1,"oldest":"TIME","amount":{"EUR":1},"without_amount":0}}},`+
		`{"gateway":"two","total":2,"oldest":"TIME","amount":{},"without_amount":0,"by_reason":{`+
		`"unknown_outcome":{"jobs":1,"oldest":"TIME","amount":{},"without_amount":0},`+
		`"unreadable":{"jobs":1,"oldest":"TIME","amount":{},"without_amount":0}}}]}`+"\n", "")
}

func TestDLQShow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.accept(r.gateway(r.one), job.Enqueued, charge("live", "1", ""))
	r.reject(r.two, job.Job{ID: "a"})
	r.expect(r.run("show", "a"), 2, "", "dispatcher: job \"a\" is parked at several gateways: one, two\nhint: choose one with -g\n")
	r.expect(r.run("show", "a", "-g", r.one), 0, `id	a
gateway	one
reason	refused
error	HTTP 402: {"error":"card <declined>"}
attempts	1
attempts spent	1 of 6
replays	0
parked	TIME
batch	b1
amount	EUR 1050
may have charged	no
idempotency key	a
a replay	goes in with the idempotency key a~2
accepted	TIME
first call	TIME
call 1	TIME  HTTP 402  refused  0.250 s
`, "")
	r.expect(r.run("show", "e", "-o", "json", "--payload"), 0, `{"id":"e","gateway":"two","reason":"unknown_outcome","error":"timed out","attempts":1,"parked_at":"TIME","batch":"","replays":0,`+
		`"payload":{"n":1},"attempts_spent":1,"cost":1,"idempotency_key":"","accepted_at":"TIME","first_call_at":"TIME","may_have_charged":true,"amount":{},`+
		`"replay":"held back: an earlier call may have charged, and the gateway keeps no idempotency keys: look it up, then use \"dlq resolve\"",`+
		`"calls":[{"at":"TIME","seconds":0.25,"status":0,"verdict":"unknown"}]}`+"\n", "")
	if got := r.run("show", "e"); !strings.HasSuffix(got.out, "\ncall 1\tTIME  no answer  unknown  0.250 s\n") {
		t.Errorf("a call without an answer: %s", got.out)
	}
	r.expect(r.run("show", "live"), 4, "", "dispatcher: job \"live\" is not parked: it is queued at one\n"+
		"hint: see what is parked with \"dispatcher dlq list\", and any job with \"dispatcher job ID\"\n")
}
