package main

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/job"
)

func TestDLQHistoryShowsEachAct(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.expect(r.run("history"), 0, "", "")
	r.stock()
	r.expect(r.run("history"), 0, "", "")
	who, err := cli.WhoAmI()
	r.must(err)
	history := func(args ...string) ran {
		got := r.run(append([]string{"history"}, args...)...)
		got.out = strings.ReplaceAll(got.out, who, "WHO")
		return got
	}
	r.run("replay", "--dry-run")
	r.run("replay", "--yes", "--reason", "refused", "--why", "bank is back")
	r.run("discard", "--yes", "--why", "too late", "--id", "c", "--id", "e", "--may-be-charged")
	r.run("discard", "--yes", "--id", "b") // without a reason it is refused
	r.run("resolve", "--done", "--yes", "--why", "paid, see ch_3K", "--match", "timed out")
	r.expect(history(), 0, `TIME	one	WHO	replay	1	EUR 1050	'--reason refused	bank is back	TIME
TIME	one	WHO	discard	1	EUR 9223372036854775807	'--id c --id e --may-be-charged	too late	TIME
TIME	one	WHO	resolve --done	1	EUR 1	'--match "timed out"	paid, see ch_3K	TIME
TIME	two	WHO	discard	1		'--id c --id e --may-be-charged	too late	TIME
`, "")
	r.expect(history("-g", r.two, "-o", "json"), 0, `{"gateway":"two","at":"TIME","who":"WHO","via":"redis","what":"discard","why":"too late","filter":"--id c --id e --may-be-charged",`+
		`"jobs":1,"amount":{},"without_amount":0,"ended":"TIME"}`+"\n", "")
	r.expect(history("--limit", "2"), 0, `TIME	one	WHO	replay	1	EUR 1050	'--reason refused	bank is back	TIME
TIME	one	WHO	discard	1	EUR 9223372036854775807	'--id c --id e --may-be-charged	too late	TIME
`, "")
	r.expect(history("--until", "1h"), 0, "", "")
	if got := strings.Count(history("--since", "1h").out, "\n"); got != 4 {
		t.Errorf("%d acts in the last hour", got)
	}
	if got := r.runWith(cli.Streams{OutTerminal: true}, "history", "--limit", "1"); !strings.HasPrefix(got.out, "AT") || !strings.Contains(got.out, "bank is back") {
		t.Errorf("on a terminal:\n%s", got.out)
	}
}

func TestDLQHistorySaysWhatWasNeverEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := deadletter.New(r.c, r.one).Entry(deadletter.Act{At: time.Now(), Who: "ann", What: "replay"})
	r.must(e.Begin(r.ctx))
	r.must(e.Note(r.ctx, deadletter.Deed{Totals: job.Totals{Jobs: 40}}))
	got := r.run("history")
	if fields := strings.Split(got.out, "\t"); len(fields) != 9 || fields[4] != "40" || fields[8] != "\n" {
		t.Errorf("%q", got.out)
	}
	if got := r.run("history", "-o", "json"); !strings.HasSuffix(got.out, `"jobs":40,"amount":{},"without_amount":0,"ended":null}`+"\n") {
		t.Errorf("%s", got.out)
	}
}

func TestDLQHistoryAskedWrongly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for args, want := range map[string]string{
		"--limit 0":        "--limit 0 is too few",
		"--since tomorrow": `--since "tomorrow" is not a time`,
		"--since=":         "--since is empty",
		"x":                `unexpected argument "x"`,
		"--reason refused": "unknown flag: --reason",
	} {
		got := r.run(append([]string{"history"}, strings.Fields(args)...)...)
		if got.code != 2 || got.out != "" || !strings.Contains(got.err, want) {
			t.Errorf("%s: exit code %d, %q", args, got.code, got.err)
		}
	}
}

func TestDLQHistoryShowsTheMoneyBeforeAReplace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	was := deadletter.NewExchange()
	was.Add("a", deadletter.Version{Digest: "d1", Money: "100 EUR"}, deadletter.Version{Digest: "d2", Money: "90 EUR"}, true)
	e := deadletter.New(r.c, r.one).Entry(deadletter.Act{At: time.Unix(1_700_000_000, 0).UTC(), Who: "kim", What: "replace", Filter: "the lines of x"})
	r.must(e.Begin(r.ctx))
	r.must(e.End(r.ctx, deadletter.Deed{Totals: job.Totals{Jobs: 1, Amount: job.Amounts{"EUR": big.NewInt(90)}}, Replaced: was}))
	r.expect(r.run("history"), 0, "TIME\tone\tkim\treplace\t1\tEUR 100 → EUR 90\tthe lines of x\t\tTIME\n", "")
	if got := r.run("history", "-o", "json"); !strings.Contains(got.out, `"replaced":{"amount_before":{"EUR":100},"without_amount_before":0,"changes":[{"id":"a","before":"d1","after":"d2"}],"digest":"`) {
		t.Errorf("%s", got.out)
	}
}
