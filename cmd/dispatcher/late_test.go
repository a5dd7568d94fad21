package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// lateRig is a rig with a Redis of its own, behind a line that can hold a command back.
func lateRig(t *testing.T) (*rig, *testkit.Line) {
	t.Helper()
	server := testkit.Server(t)
	line := testkit.LineTo(t, server.Addr())
	r := newRig(t)
	r.c = server.Client()
	r.stock()
	r.configure("redis://" + line.Addr() + "/0")
	return r, line
}

// sticks runs a command whose script the line holds back. It returns the output of the command, and a function that lets the script through.
func (r *rig) sticks(line *testkit.Line, marker string, args ...string) (told ran, release func()) {
	r.t.Helper()
	met, on := line.Stick(func(question []byte) bool { // the script that asks for the time has no arguments but a key, and that of the trail has a journal
		return !bytes.Contains(question, []byte(":journal")) && bytes.Contains(bytes.ToLower(question), []byte("evalsha")) && bytes.Contains(question, []byte(marker)) && !bytes.HasPrefix(question, []byte("*4"))
	})
	told = r.command(args...)
	select {
	case <-met:
	default:
		r.t.Fatalf("%v did not get stuck: %+v", args, told)
	}
	return told, func() {
		r.t.Helper()
		before := r.scripts()
		on()
		testkit.Eventually(r.t, 10*time.Second, "what was stuck has come", func() bool { return r.scripts() != before })
	}
}

// scripts returns Redis's counters of scripts that ran, and that failed.
func (r *rig) scripts() string {
	_, after, _ := strings.Cut(r.c.Info(r.ctx, "commandstats").Val(), "cmdstat_evalsha:")
	line, _, _ := strings.Cut(after, "\r")
	return line
}

// holding returns all switches that are on at gateway one and its batch b1.
func (r *rig) holding() string {
	r.t.Helper()
	g := r.gateway(r.one)
	v, err := dispatch.Look(r.ctx, r.c, g)
	r.must(err)
	l, err := dispatch.CurrentLimits(r.ctx, r.c, g)
	r.must(err)
	b, _, err := dispatch.Books(r.c, g).Batch(r.ctx, "b1")
	r.must(err)
	var on []string
	for what, is := range map[string]bool{"paused": v.Hold.Paused, "limits live": l.Live, "batch paused": !b.Paused.IsZero(), "batch cancelled": !b.Cancelled.IsZero()} {
		if is {
			on = append(on, what)
		}
	}
	return strings.Join(on, ", ")
}

// A switch is delayed, and reaches Redis after one that was started later. The later one stays in force.
func TestAStuckSwitchDoesNotUndoALaterOne(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before      []string
		stuck, then []string
		marker      string
		holds       string
	}{
		"pause":        {nil, []string{"pause", "--why", "STUCK"}, []string{"resume"}, "STUCK", ""},
		"resume":       {[]string{"pause"}, []string{"resume"}, []string{"pause"}, bucket.HoldChannel, "paused"},
		"limit set":    {nil, []string{"limit", "set", "7/s"}, []string{"limit", "reset"}, "7/s", ""},
		"limit reset":  {[]string{"limit", "set", "7/s"}, []string{"limit", "reset"}, []string{"limit", "set", "8/s"}, ":limits", "limits live"},
		"batch pause":  {nil, []string{"batch", "pause", "b1", "--why", "STUCK", "--yes"}, []string{"batch", "resume", "b1", "--why", "x", "--yes"}, "STUCK", ""},
		"batch cancel": {nil, []string{"batch", "cancel", "b1", "--why", "STUCK", "--yes"}, []string{"batch", "resume", "b1", "--why", "x", "--yes"}, "STUCK", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, line := lateRig(t)
			at := []string{"-g", r.one}
			for _, args := range [][]string{tc.stuck, tc.then, tc.before} { // so that Redis knows the scripts
				if args != nil {
					r.command(append(args, at...)...)
				}
			}
			told, release := r.sticks(line, tc.marker, append(tc.stuck, at...)...)
			if told.code != 5 || !strings.Contains(told.err, "it is not carried out any more") {
				t.Errorf("the person is told: %+v", told)
			}
			if then := r.command(append(tc.then, at...)...); then.code != 0 {
				t.Fatalf("%v: %+v", tc.then, then)
			}
			release()
			if got := r.holding(); got != tc.holds {
				t.Errorf("what got stuck has come after %v, and there holds: %q, want %q", tc.then, got, tc.holds)
			}
		})
	}
}

// A command says that its act was not carried out. If its script then reaches Redis late, the act is still not carried out.
func TestAnActThatGotStuckIsNotCarriedOutLater(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, stuck string
		marker        string
	}{
		"pause":    {"resume -g ONE", "pause -g ONE --why STUCK", "STUCK"},
		"limit":    {"limit reset -g ONE", "limit set 7/s -g ONE", "7/s"},
		"batch":    {"batch resume b1 --why x --yes", "batch cancel b1 --why STUCK --yes", "STUCK"},
		"discard":  {"dlq discard --id b --why x --yes", "dlq discard --id a --why x --yes", ":job:a"},
		"resolve":  {"dlq resolve --done --id e --why x --yes", "dlq resolve --done --id d --why x --yes", ":job:d"},
		"not done": {"dlq resolve --not-done --id e --why x --yes", "dlq resolve --not-done --id d --why x --yes", ":admission"},
		"replay":   {"dlq replay --id b --yes", "dlq replay --id a --yes", ":admission"},
		"park":     {"park b2 --why x --yes -g ONE", "park b3 --why x --yes -g ONE", ":job:b3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, line := lateRig(t)
			args := func(text string) []string { return strings.Fields(strings.ReplaceAll(text, "ONE", r.one)) }
			r.accept(r.gateway(r.one), job.Enqueued, charge("b2", "1", ""), charge("b3", "1", ""))
			if warm := r.command(args(tc.before)...); warm.code != 0 { // so that Redis knows the script
				t.Fatalf("%s: %+v", tc.before, warm)
			}
			before := r.holding() + r.parked()
			told, release := r.sticks(line, tc.marker, args(tc.stuck)...)
			if told.code != 5 || !strings.Contains(told.err, "it is not carried out any more") {
				t.Errorf("the person is told: %+v", told)
			}
			over := r.c.Time(r.ctx).Val().Add(5 * time.Second) // it began before that
			testkit.Eventually(t, time.Minute, "its time is over", func() bool { return r.c.Time(r.ctx).Val().After(over) })
			release()
			if got := r.holding() + r.parked(); got != before {
				t.Errorf("it was carried out: %q, before it was %q", got, before)
			}
		})
	}
}
