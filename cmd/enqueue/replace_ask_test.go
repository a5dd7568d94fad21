package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
)

func (b *bench) trail() (acts []deadletter.Act) {
	b.t.Helper()
	for _, line := range b.client().LRange(b.t.Context(), redisdb.NewKeys(b.g).Trail(), 0, -1).Val() {
		var a deadletter.Act
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			b.t.Fatal(err)
		}
		acts = append(acts, a)
	}
	return acts
}

// Off a terminal and without --yes, --replace is a dry run: it shows the money before and after, and changes nothing.
func TestReplaceOffATerminalIsADryRun(t *testing.T) {
	b := setup(t, place{})
	b.park(false, "a", "b")
	b.write("edited.ndjson", `{"id":"a","payload":{"money":{"amount":7,"currency":"eur"}}}
{"id":"b","payload":{"money":{"amount":9,"currency":"eur"}}}
{"id":"nobody","payload":{}}
`)
	got := b.run("--replace", "-g", b.g, "-f", "edited.ndjson", "-o", "json")
	b.want(result{got.code, got.out, ""}, result{3, swapped(strings.TrimSuffix(counts(3, 0, 0, 0, 1, 2), "}\n")+`,"dry_run":true,"usable":3}`+"\n", 2, 2, 16), ""})
	for _, says := range []string{"line 3: no such job is known",
		"dry run: would replace the payloads of 2 jobs: EUR 0.02 → EUR 0.16; nothing was changed: add --yes to do it"} {
		if !strings.Contains(got.err, says) {
			t.Errorf("standard error has no %q: %s", says, got.err)
		}
	}
	if text := b.run("--replace", "--yes", "--dry-run", "-g", b.g, "-f", "edited.ndjson"); !strings.Contains(text.out, "would be replaced\t2\nmoney before\tEUR 0.02\nmoney after\tEUR 0.16\n") {
		t.Errorf("in text: %+v", text)
	}
	if a := b.record(b.g, "a"); string(a.Job.Payload) != `{"money":{"amount":1,"currency":"eur"}}` || a.KeyGeneration != 1 || len(b.trail()) != 0 {
		t.Errorf("a dry run has changed %+v, and the trail has %v", a, b.trail())
	}
}

func TestReplaceHoldsBackWhatWouldLoseItsAmount(t *testing.T) {
	b := setup(t, place{})
	b.park(false, "a", "b")
	b.write("edited.ndjson", `{"id":"a","payload":{"money":{"amount":null}}}
{"id":"b","payload":{"money":{"amount":9,"currency":"eur"}}}
`)
	got := b.run("--replace", "--yes", "-g", b.g, "-f", "edited.ndjson", "-o", "json")
	b.want(result{got.code, got.out, ""}, result{3, swapped(counts(2, 1, 0, 0, 1, 0), 1, 1, 9), ""})
	if !strings.Contains(got.err, "line 1: its amount can be read now, and can't be in the new payload: mend it, or say --without-amount") {
		t.Errorf("standard error: %s", got.err)
	}
	got = b.run("--replace", "--yes", "--without-amount", "-g", b.g, "-f", "edited.ndjson", "-o", "json", "-q")
	if got.code != 0 || !strings.Contains(b.warned, "warning: 1 job without the amount that could be read before\n") || !strings.Contains(got.out, `"amount_after":{},"without_amount_after":1,"amounts_lost":1}`) {
		t.Errorf("said so: %+v", got)
	}
	if a := b.record(b.g, "a"); a.State != job.Queued || a.Money != "-" {
		t.Errorf("a: %+v", a)
	}
}

// On a terminal, --replace reads the whole file first, shows the money before and after, and asks.
func TestReplaceShowsTheMoneyAndAsks(t *testing.T) {
	b := setup(t, place{})
	b.park(false, "a")
	b.write("edited.ndjson", `{"id":"a","payload":{"money":{"amount":7,"currency":"eur"}}}`+"\n"+`{"id":"nobody","payload":{}}`+"\n")
	ask := func(answer string) (int, string, string) {
		var out, errs bytes.Buffer
		code := cli.Main(name, newCommand, []string{"-c", filepath.Join(b.dir, "dispatcher.yaml"), "--replace", "-g", b.g, "-f", filepath.Join(b.dir, "edited.ndjson"), "-o", "json"},
			cli.Streams{In: strings.NewReader(answer), Out: &out, Err: &errs, InTerminal: true, ErrTerminal: true})
		return code, out.String(), errs.String()
	}
	const question = "Replace the payloads of 1 job: EUR 0.01 → EUR 0.07? [y/N] "
	code, out, errs := ask("n\n")
	if code != 0 || !strings.Contains(errs, question) || !strings.Contains(errs, "1 of the lines can't be used; --dry-run says why") ||
		!strings.Contains(errs, "nothing was changed") || !strings.Contains(out, `"enqueued":0`) || !strings.Contains(out, `"dry_run":true`) {
		t.Errorf("declined: exit code %d, %s, %s", code, out, errs)
	}
	if a := b.record(b.g, "a"); a.State != job.Parked || a.KeyGeneration != 1 || len(b.trail()) != 0 {
		t.Errorf("declined, and a is %+v", a)
	}
	code, out, errs = ask("y\n")
	if code != 3 || !strings.Contains(errs, question) || !strings.Contains(errs, "line 2: no such job is known") || !strings.Contains(out, `"enqueued":1`) {
		t.Errorf("agreed: exit code %d, %s, %s", code, out, errs)
	}
	if a := b.record(b.g, "a"); a.State != job.Queued || !strings.Contains(string(a.Job.Payload), "7") {
		t.Errorf("agreed, and a is %+v", a)
	}
}

// The trail has the first hundred jobs with the digests of both payloads, and one digest over all jobs.
func TestTheTrailOfAReplaceNamesJobsAndDigests(t *testing.T) {
	b := setup(t, place{burst: 1000})
	const jobs = 130
	ids := make([]string, jobs)
	var file strings.Builder
	sum := sha256.New()
	for i := range ids {
		ids[i] = fmt.Sprintf("j%03d", i)
		after := fmt.Sprintf(`{"money":{"amount":%d,"currency":"eur"}}`, i+2)
		fmt.Fprintf(&file, `{"id":%q,"payload":%s}`+"\n", ids[i], after)
		fmt.Fprintf(sum, "%s %s %s\n", ids[i], producer.Digest([]byte(`{"money":{"amount":1,"currency":"eur"}}`)), producer.Digest([]byte(after)))
	}
	b.park(false, ids...)
	b.write("edited.ndjson", file.String())
	if got := b.run("--replace", "--yes", "--why", "ticket 4711", "-g", b.g, "-f", "edited.ndjson", "-q"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	acts := b.trail()
	if len(acts) != 1 || acts[0].Jobs != jobs || acts[0].Why != "ticket 4711" || acts[0].Replaced == nil {
		t.Fatalf("the trail has %+v", acts)
	}
	was := acts[0].Replaced
	if len(was.Changes) != 100 || was.Digest != hex.EncodeToString(sum.Sum(nil)) || was.Amount["EUR"].Int64() != jobs {
		t.Errorf("%d changes, EUR %s before, the digest over all is %s", len(was.Changes), was.Amount["EUR"], was.Digest)
	}
	want := deadletter.Change{ID: "j007", Before: producer.Digest([]byte(`{"money":{"amount":1,"currency":"eur"}}`)),
		After: producer.Digest([]byte(`{"money":{"amount":9,"currency":"eur"}}`))}
	if was.Changes[7] != want {
		t.Errorf("the eighth is %+v, want %+v", was.Changes[7], want)
	}
}
