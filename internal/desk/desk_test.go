package desk

import (
	"math"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// one returns a gateway with the limits 100/s and 6000/m.
func one(t *testing.T) *Gateway {
	t.Helper()
	text := "redis: redis://x\ngateways:\n  " + testkit.Gateway(t) + ":\n    request: {url: \"http://gateway.invalid/\"}\n    leak: {limits: [100/s, 6000/m]}\n"
	cfg, err := config.Parse("x.yaml", []byte(text), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return New(testkit.Client(t), cfg.Gateways).Gateways[0]
}

func TestAShareIsOfTheTightestLimitAsItIsNow(t *testing.T) {
	t.Parallel()
	g := one(t)
	var p Pace
	if err := p.SetShare("20%", "--share"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set  []job.Limit
		want float64
	}{
		{nil, 20},
		{[]job.Limit{{N: 50, Window: time.Second}, {N: 1200, Window: time.Minute}}, 4},
		{nil, 20},
	} {
		if err := g.SetLimits(t.Context(), By{Who: "a test"}, c.set); err != nil {
			t.Fatal(err)
		}
		leave, err := g.leave(t.Context(), p)
		if err != nil || math.Abs(leave.Rate-c.want) > 1e-9 || leave.Stop != "" {
			t.Errorf("limits %v: %+v, %v, want %v/s", c.set, leave, err, c.want)
		}
	}
	acts, err := g.Store.LastActs(t.Context(), 3)
	if err != nil || len(acts) != 3 || acts[1].What != "limit set 50/s 1200/m" || acts[2].What != "limit reset" || acts[2].Who != "a test" {
		t.Errorf("the trail is %+v, %v", acts, err)
	}
}

func TestThePaceOfAReplayIsRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"50/s": 50, "3000/m": 50, "1/10ms": 100} {
		var p Pace
		if err := p.SetRate(text, "--rate"); err != nil || math.Abs(p.Rate-want) > 1e-9 || p.text() != " --rate "+text {
			t.Errorf("--rate %s: %+v, %v", text, p, err)
		}
	}
	for text, want := range map[string]float64{"20%": 0.2, "100%": 1, "0.5%": 0.005} {
		var p Pace
		if err := p.SetShare(text, "--share"); err != nil || math.Abs(p.Share-want) > 1e-9 || p.text() != " --share "+text {
			t.Errorf("--share %s: %+v, %v", text, p, err)
		}
	}
	for _, text := range []string{"0x10%", "1_0%", "20", "%", "Inf%", "-5%", "1e3%"} {
		if err := (&Pace{}).SetShare(text, "--share"); job.CodeOf(err) != job.CodeUsage {
			t.Errorf("--share %s: %v", text, err)
		}
	}
}

func TestAReplayStopsWhileTheGatewayIsPaused(t *testing.T) {
	t.Parallel()
	g := one(t)
	by := By{Who: "ada", Why: "a ticket"}
	for _, c := range []struct {
		do   func() error
		want string
	}{
		{func() error { return g.Pause(t.Context(), by, "the network") }, g.Name + " is paused (the network)"},
		{func() error { return g.Resume(t.Context(), by) }, ""},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if leave, err := g.leave(t.Context(), Pace{}); err != nil || leave.Stop != c.want {
			t.Errorf("it stops for %q, %v, want %q", leave.Stop, err, c.want)
		}
	}
}

// A filter written as flags, or as the fields of a form, is read as the same filter again.
func TestAFilterIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	name := func(field string) string { return "--" + field }
	f, err := ParseFilter(url.Values{"reason": {"refused", "expired"}, "batch": {"a b"}, "since": {"2h"}, "id": {"x", "y"}, "match": {`HTTP "4..`}}, now, name)
	if err != nil {
		t.Fatal(err)
	}
	const text = `--reason refused --reason expired --batch "a b" --since 2026-11-23T07:00:00Z --id x --id y --match "HTTP \"4.."`
	if got := FilterText(f); got != text {
		t.Errorf("%s\nwant %s", got, text)
	}
	again, err := ParseFilter(FilterValues(f), now.Add(time.Hour), name)
	if err != nil || FilterText(again) != text {
		t.Errorf("%s, %v\nwant %s", FilterText(again), err, text)
	}
}

// An empty value, as of an unset variable, never means all jobs.
func TestAFilterThatSaysNothingIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		q    url.Values
		want string
	}{
		{url.Values{"reason": {""}}, `--reason "" is not a reason`},
		{url.Values{"reason": {"refused", "broke"}}, `--reason "broke" is not a reason`},
		{url.Values{"reason": {"unkown_outcome"}}, `--reason "unkown_outcome" is not a reason for which a job is parked; did you mean unknown_outcome?`},
		{url.Values{"reason": {"waiting for room"}}, `--reason "waiting for room" is not a reason for which a job is parked; did you mean rejected?`},
		{url.Values{"reason": {"waiting_for_room"}}, `--reason "waiting_for_room" is not a reason for which a job is parked; did you mean rejected?`},
		{url.Values{"id": {"a", ""}}, "--id is empty"},
		{url.Values{"since": {"1h"}, "until": {"2h"}}, "no job was parked at or after"},
		{url.Values{"until": {"tomorrow"}}, `--until "tomorrow" is not a time`},
		{url.Values{"match": {"("}}, "--match: "},
	} {
		_, err := ParseFilter(c.q, time.Now(), func(field string) string { return "--" + field })
		if job.CodeOf(err) != job.CodeUsage || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.q, err, c.want)
		}
	}
}

// The word for the state of a gateway and the text below it have the same reason.
func TestEachWordHasItsWhy(t *testing.T) {
	t.Parallel()
	v := dispatch.Glance{Stopped: "no dispatcher serves the gateway"}
	if s := StatusOf("g", v, nil); s.Word() != Unserved || s.Why() != v.Stopped {
		t.Errorf("%q: %q", s.Word(), s.Why())
	}
	v.Hold.Paused, v.Hold.PauseWhy = true, "a ticket"
	if s := StatusOf("g", v, nil); s.Word() != Paused || s.Why() != "paused: a ticket" {
		t.Errorf("%q: %q", s.Word(), s.Why())
	}
	if s := StatusOf("g", dispatch.Glance{}, nil); s.Word()+s.Why() != "" {
		t.Errorf("%q: %q", s.Word(), s.Why())
	}
}

// A filter from the trail has the same meaning in a shell.
func TestAFilterIsItselfInAShell(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"a b", "a;exit 1", "$(exit 1)", "`exit 1`", "it's", `"x"`, "a&b", `\d+$`, "what!"} {
		text := FilterText(deadletter.Filter{Batch: value, IDs: []string{value}, Match: regexp.MustCompile(regexp.QuoteMeta(value))})
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\n' `+text).Output()
		if want := "--batch\n" + value + "\n--id\n" + value + "\n--match\n" + regexp.QuoteMeta(value) + "\n"; err != nil || string(out) != want {
			t.Errorf("%s is\n%s in a shell, %v, want\n%s", text, out, err, want)
		}
	}
}
