package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

func TestStatusShowsTheMoneyThatIsParked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(r.one, charge("no", "1100", ""), job.Refused, 402, "HTTP 402")
	r.reject(r.one, charge("a", "1050", ""), charge("b", "50", ""), charge("c", `"?"`, ""))
	for terminal, want := range map[bool]string{true: "  EUR 11.00  ", false: "\tEUR 1100\t"} {
		var out, errs bytes.Buffer
		s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, OutTerminal: terminal}
		if code := cli.Main(name, newCommand, []string{"status", "-c", r.file, "-g", r.one}, s); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d, want %q:\n%s%s", code, want, out.String(), errs.String())
		}
	}
	var out bytes.Buffer
	cli.Main(name, newCommand, []string{"status", "-c", r.file, "-o", "json"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	var v struct{ Gateways []desk.Status }
	r.must(json.Unmarshal(out.Bytes(), &v))
	if one := v.Gateways[0]; job.MinorText(one.Amount, 0) != "EUR 2200" || one.NoAmount != 1 {
		t.Errorf("%+v", one)
	}
	if !strings.Contains(out.String(), `"parked_amount":{},"parked_without_amount":0`) {
		t.Errorf("a gateway without money has the fields too: %s", out.String())
	}
}

// The reason why a gateway is stopped is never cut. On a terminal, the table has one word, and a line below has the whole reason.
func TestStatusSaysWholeWhatStopsAGateway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	why := strings.Repeat("a long story of the acquirer's, ", 8) + "ends here"
	for _, terminal := range []bool{true, false} {
		var out, errs bytes.Buffer
		s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, OutTerminal: terminal}
		if code := cli.Main(name, newCommand, []string{"pause", "-c", r.file, "-g", r.one, "--why", why}, s); code != 0 {
			t.Fatalf("pause: %d: %s", code, errs.String())
		}
		out.Reset()
		errs.Reset()
		if code := cli.Main(name, newCommand, []string{"status", "-c", r.file, "-g", r.one}, s); code != 0 {
			t.Fatalf("status: %d: %s", code, errs.String())
		}
		said, other := out.String(), errs.String()
		if terminal {
			said, other = other, said
		}
		if !strings.Contains(said, why) || strings.Contains(out.String(), "…") || terminal && !strings.Contains(other, "  paused  ") {
			t.Errorf("terminal %v:\n%s\n%s", terminal, out.String(), errs.String())
		}
	}
}

// Status names admission as the bottleneck if its limit is below that of the leak. "limit" does the same.
func TestStatusNamesTheBottleneck(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	text, err := os.ReadFile(r.file)
	r.must(err)
	r.must(os.WriteFile(r.file, []byte(strings.Replace(string(text), "leak: {limits: [100/s]}", "leak: {limits: [100/s]}\n    admission: {limits: [100/s]}", 1)), 0o600))
	look := func(args ...string) string {
		var out bytes.Buffer
		cli.Main(name, newCommand, append(args, "-c", r.file), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		return out.String()
	}
	for _, c := range []struct{ gateway, set, status, limit, fields string }{
		{r.one, "500/s", "\t500/s (admission 100/s)\t", ": 500/s (admission 100/s) (set live; the file says 100/s)", `"limits":["500/s"],"admission":["100/s"],"bottleneck":"admission"`},
		{r.one, "50/s", "\t50/s\t", ": 50/s (set live; the file says 100/s)", `"limits":["50/s"],"admission":["100/s"],"bottleneck":"leak"`},
		{r.two, "500/s", "\t500/s\t", ": 500/s (set live; the file says 100/s)", `"limits":["500/s"],"admission":["500/s"],"bottleneck":"leak"`},
	} {
		if got := look("limit", "set", "-g", c.gateway, c.set); !strings.Contains(got, c.limit) {
			t.Errorf("limit set %s says %q, want %q", c.set, got, c.limit)
		}
		if got := look("status", "-g", c.gateway); !strings.Contains(got, c.status) {
			t.Errorf("status at %s says %q, want %q", c.set, got, c.status)
		}
		if got := look("status", "-g", c.gateway, "-o", "json"); !strings.Contains(got, c.fields) {
			t.Errorf("status at %s says %s, want %s", c.set, got, c.fields)
		}
	}
}

// The runbook has a line for each word that says why a gateway is not called, and for each reason for parking.
func TestTheRunbookNamesEveryHoldAndReason(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for _, v := range []dispatch.Glance{{Hold: bucket.Standing{Barred: true}}, {Hold: bucket.Standing{Paused: true}}, {Hold: bucket.Standing{Denied: true}},
		{Hold: bucket.Standing{Circuit: true}}, {Hold: bucket.Standing{HeldUntil: time.Now()}}, {Stopped: "no dispatcher"}, {Hold: bucket.Standing{Probing: true}}} {
		words[desk.StatusOf("", v, nil).Word()] = true
	}
	if len(words) != 7 || words[""] {
		t.Fatalf("%v", words)
	}
	for _, r := range job.Reasons() {
		words[string(r)] = true
	}
	for word := range words {
		if !strings.Contains(string(text), "\n| `"+word+"` | ") {
			t.Errorf("docs/runbook.md has no line for `%s`: say what it means and what to do", word)
		}
	}
}

// Status names a dispatcher that is too slow for its limits once, with its gateways, since when, and what to do.
func TestStatusNamesADispatcherThatIsTooSlow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now, err := r.c.Time(t.Context()).Result()
	r.must(err)
	since := now.Add(-time.Hour).Truncate(time.Second)
	for _, g := range []string{r.one, r.two} {
		r.must(r.c.HSet(t.Context(), redisdb.NewKeys(g).Slow(), "host.7", fmt.Sprintf("%d %d 40", since.UnixMicro(), now.Add(time.Hour).UnixMicro())).Err())
	}
	var out, errs bytes.Buffer
	cli.Main(name, newCommand, []string{"status", "-c", r.file}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if want := fmt.Sprintf("%s, %s: the dispatcher host.7 is too slow for the limits, and calls as fast as it can, since %s", r.one, r.two, job.Moment(since)); strings.Count(errs.String(), want) != 1 ||
		!strings.Contains(errs.String(), "run dispatchers on more machines") {
		t.Errorf("status says %q, want %q", errs.String(), want)
	}
	out.Reset()
	cli.Main(name, newCommand, []string{"status", "-c", r.file, "-g", r.two, "-o", "json"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if want := fmt.Sprintf(`"overloaded":[{"process":"host.7","since":%q,"slots_in_hand_at_most":40}]`, since.UTC().Format(time.RFC3339)); !strings.Contains(out.String(), want) {
		t.Errorf("status says %s, want %s", out.String(), want)
	}
}

// With a damaged key of one gateway, status still shows the other gateway, and does not say that nothing needs a person.
func TestStatusWithADamagedKeyOfOneGateway(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"braked", "batches", "money", "batch:b1"} {
		r := newRig(t)
		r.payments()
		if key == "batch:b1" {
			r.must(r.c.ZAdd(t.Context(), redisdb.NewKeys(r.one).Braked(), redis.Z{Score: 1, Member: "b1"}).Err())
		}
		full := "spillway:{" + r.one + "}:" + key
		r.must(r.c.Del(t.Context(), full).Err())
		r.must(r.c.Set(t.Context(), full, "rubbish", 0).Err())
		if got := r.command("status"); got.code != 1 || !strings.Contains(got.out, "two\t") || strings.Contains(got.err, "nothing needs a person") {
			t.Errorf("%s is damaged: %+v", key, got)
		}
	}
}
