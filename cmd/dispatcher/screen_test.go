package main

import (
	"strings"
	"testing"

	"github.com/rivo/uniseg"

	"spillway/internal/cli"
	"spillway/internal/job"
)

// On a terminal of 80 columns, no command writes a longer line, and nothing that a person needs is left out.
func TestEveryScreenStaysOnItsTerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := "subscription-renewal-of-customer-0000042-for-the-period-2026-11-01-to-2026-11-30-attempt-1"
	batch := "the-renewals-of-november-2026-northern-europe-second-half"
	r.manyCurrencies()
	r.park(r.one, charge(id, "963586", batch), job.Refused, 402, `HTTP 402: {"error":{"code":"card_declined","message":"`+strings.Repeat("no ", 60)+`"}}`)
	r.command("pause", "-g", r.one, "--why", "the acquirer has announced a window of maintenance until tomorrow morning")
	on := cli.Streams{In: strings.NewReader(""), OutTerminal: true, OutWidth: 80, ErrTerminal: true, ErrWidth: 80}
	for _, c := range []struct {
		args []string
		has  []string // on the screen, however its lines break
	}{
		{[]string{"status"}, []string{r.one, "refused 8", "USD 879,766,386.01", "maintenance until tomorrow morning"}},
		{[]string{"batch", batch}, []string{"EUR 9,635.86", "parked", "refused"}},
		{[]string{"batch", batch, "--export"}, []string{id, "refused"}},
		{[]string{"batch", batch, "--by", "+1h"}, nil},
		{[]string{"dlq", "list"}, []string{id, batch, "card_declined"}},
		{[]string{"dlq", "show", id}, []string{id, strings.Repeat("no ", 60)}},
		{[]string{"dlq", "stats"}, []string{"KWD 87,976,638.604"}},
		{[]string{"dlq", "replay", "--dry-run"}, []string{"KWD 87,976,638.604"}},
		{[]string{"dlq", "history"}, []string{"maintenance until tomorrow morning"}},
		{[]string{"job", id}, []string{id, batch, strings.Repeat("no ", 60)}},
		{[]string{"limit", "show"}, []string{r.two, "as in the file"}},
		{[]string{"audit"}, []string{"refused 8"}},
		{[]string{"doctor"}, []string{r.one}},
		{[]string{"job", "no-such-" + id}, nil},
	} {
		got := r.commandAsItIs(on, c.args...)
		for line := range strings.SplitSeq(got, "\n") {
			if n := uniseg.StringWidth(line); n > 80 {
				t.Errorf("%v: a line takes %d columns: %q", c.args, n, line)
			}
		}
		for _, want := range c.has {
			if !strings.Contains(unspaced(got), unspaced(want)) {
				t.Errorf("%v lacks %q:\n%s", c.args, want, got)
			}
		}
	}
}

// commandAsItIs returns the whole output of a command, with the real names of the gateways, which have another width.
func (r *rig) commandAsItIs(s cli.Streams, args ...string) string {
	r.t.Helper()
	var all strings.Builder
	s.Out, s.Err = &all, &all
	cli.Main(name, newCommand, append(args, "-c", r.file), s)
	return all.String()
}

// unspaced removes white space, so that a text is found although its line breaks.
func unspaced(text string) string { return strings.Join(strings.Fields(text), "") }

// If nothing is parked, a person is told so.
func TestAnEmptyStoreSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	on := cli.Streams{In: strings.NewReader(""), OutTerminal: true}
	for act, says := range map[string]string{"list": "no parked job is meant\n", "stats": "no parked job is meant\n", "history": "no act is meant\n"} {
		r.expect(r.runWith(on, act), 0, "", says)
		if got := r.runWith(on, act, "-o", "json"); got.err != "" {
			t.Errorf("%s -o json says %q", act, got.err)
		}
		r.expect(r.run(act), 0, "", "")
	}
}
