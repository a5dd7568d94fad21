package main

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/job"
)

// Resume does not end a hold, and says so.
func TestResumeSaysWhatElseKeepsCallsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.command("pause", "-g", r.two)
	r.expect(r.command("resume", "-g", r.two), 0, "two resumed\n", "")
	_, err := r.pacer(r.two).Failed(r.ctx, job.Circuit{}, job.Failure{Kind: job.Wait, For: time.Hour, Written: true, Why: "HTTP 429"})
	r.must(err)
	r.expect(r.command("resume", "-g", r.two), 0, "two resumed\n", "two is held until TIME: HTTP 429; a hold ends by itself\n")
	r.expect(r.command("resume", "-g", r.two, "-q"), 0, "two resumed\n", "")
}

// The history has who changed a gateway, as well as who changed its dead letters.
func TestHistoryTellsWhoSteeredAGateway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	who, err := cli.WhoAmI()
	r.must(err)
	for _, args := range [][]string{
		{"pause", "-g", r.one, "--why", "maintenance window"},
		{"resume", "-g", r.one, "--why", "it is over"},
		{"limit", "set", "-g", r.one, "50/s", "2000/m", "--why", "they asked"},
		{"limit", "reset", "-g", r.one},
		{"limit", "forgive", "-g", r.one, "--why", "their console counts none"},
	} {
		if got := r.command(args...); got.code != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
	}
	r.expect(r.command("limit", "forgive", "-g", r.one), 2, "", "dispatcher: a limit forgive needs a reason\nhint: say it with --why \"confirmed by support, ticket 4711\"\n")
	if got := r.command("limit", "set", "-g", r.one, "1/1ns"); got.code == 0 { // refused, so not written down
		t.Errorf("an absurd limit: %+v", got)
	}
	for to, want := range map[string]string{ // contradictions in the file, too
		"20/s 30/s":    `"30/s" has the same window as 20/s: keep the lower of the two`,
		"100/s 1/1ms":  "leak.jitter is 5ms, more than half the window of 1/1ms: give a window of at least 10ms, or a smaller jitter in the file",
		"100/s,5000/m": `"100/s,5000/m" is not a limit`,
	} {
		if got := r.command(append([]string{"limit", "set", "-g", r.one}, strings.Fields(to)...)...); got.code != 2 || !strings.Contains(got.err, want) || got.out != "" {
			t.Errorf("limit set %s: %+v, want %q", to, got, want)
		}
	}
	got := r.run("history")
	got.out = strings.ReplaceAll(got.out, who, "WHO")
	r.expect(got, 0, `TIME	one	WHO	pause	0			maintenance window	TIME
TIME	one	WHO	resume	0			it is over	TIME
TIME	one	WHO	limit set 50/s 2000/m	0			they asked	TIME
TIME	one	WHO	limit reset	0				TIME
TIME	one	WHO	limit forgive	0			their console counts none	TIME
`, "")
}
