package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/record"
	"spillway/internal/seal"
)

// encrypt gives the configuration a key, and sets its variable in this process.
func (r *rig) encrypt(active string) {
	r.t.Helper()
	r.t.Setenv("SPILLWAY_TEST_KEY", base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))))
	text, err := os.ReadFile(r.file)
	r.must(err)
	head := "encryption: {keys: {k1: \"${SPILLWAY_TEST_KEY}\"}, active: \"" + active + "\"}\n"
	_, body, _ := strings.Cut(string(text), "gateways:")
	line, _, _ := strings.Cut(string(text), "\n")
	r.must(os.WriteFile(r.file, []byte(line+"\n"+head+"gateways:"+body), 0o600))
	r.cfg, err = config.Load(r.file, config.Options{Payloads: true})
	r.must(err)
}

func (r *rig) forgetKey() {
	r.t.Helper()
	r.must(os.Unsetenv("SPILLWAY_TEST_KEY")) // t.Setenv has it put back
}

// exported reads the output of export as enqueue does.
func (r *rig) exported(out string) map[string]string {
	r.t.Helper()
	in, err := producer.New(strings.NewReader(strings.NewReplacer("one", r.one, "two", r.two).Replace(out)), producer.Options{
		Format: producer.NDJSON, Open: func(gateway, id string, sealed []byte) ([]byte, error) {
			return dispatch.Box(r.gateway(gateway)).Open(id, sealed)
		}})
	r.must(err)
	all := map[string]string{}
	for range strings.Count(out, "\n") {
		line, err := in.Next()
		r.must(err)
		r.must(line.Err)
		all[line.Job.ID] = string(line.Job.Payload)
	}
	return all
}

const cardholder = `{"amount":1050,"currency":"eur","card":"CANARY4111"}`

func TestPayloadsOfTheDeadAreSealedAndShownToWhoHasTheKey(t *testing.T) {
	r := newRig(t)
	r.park(r.one, job.Job{ID: "before", Payload: []byte(cardholder)}, job.Refused, 402, "HTTP 402")
	r.encrypt("k1")
	r.park(r.one, job.Job{ID: "a", Payload: []byte(cardholder)}, job.Refused, 402, "HTTP 402")
	r.must(dispatch.Store(r.c, r.gateway(r.two)).ParkUnreadable(r.ctx, "f", []byte("CANARY4111"), "foreign"))

	for _, args := range [][]string{{"show", "a", "--payload"}, {"list", "-g", r.one, "--payload"}} {
		if got := r.run(args...); got.code != 0 || !strings.Contains(got.out, "CANARY4111") {
			t.Errorf("%v with the key: %+v", args, got)
		}
	}
	out := r.run("export")
	if out.code != 0 || strings.Contains(out.out, "CANARY") || strings.Contains(out.out, "payload") || strings.Count(out.out, `"sealed":`) != 2 {
		t.Errorf("export: %+v", out)
	}
	want := map[string]string{"before": cardholder, "a": cardholder}
	if got := r.exported(out.out); len(got) != 2 || got["a"] != want["a"] || got["before"] != want["before"] {
		t.Errorf("read again: %v", got)
	}
	if plain := r.run("export", "--plain"); plain.code != 0 || strings.Count(plain.out, cardholder) != 2 || strings.Contains(plain.out, "sealed") {
		t.Errorf("export --plain: %+v", plain)
	}

	r.forgetKey()
	for _, args := range [][]string{{"show", "a", "--payload"}, {"list", "--payload"}, {"export", "--plain"}} {
		if got := r.run(args...); got.code != 2 || !strings.Contains(got.err, "${SPILLWAY_TEST_KEY} is not set") || got.out != "" {
			t.Errorf("%v without the key: %+v", args, got)
		}
	}
	for _, args := range [][]string{{"show", "a"}, {"list"}, {"stats"}, {"replay", "--reason", "refused"}, {"export", "--id", "a"}} {
		if got := r.run(args...); got.code != 0 || strings.Contains(got.out+got.err, "CANARY") {
			t.Errorf("%v needs no key: %+v", args, got)
		}
	}
	if got := r.run("export", "--id", "before"); got.code == 0 || got.out != "" {
		t.Errorf("a payload in plain was exported although it can't be sealed: %+v", got)
	}
}

// Somebody has replaced a sealed payload with that of another job, or with plain text. It is neither shown nor exported.
func TestAPayloadThatWasChangedIsSaidToBe(t *testing.T) {
	r := newRig(t)
	r.encrypt("k1")
	r.park(r.one, job.Job{ID: "a", Payload: []byte(cardholder)}, job.Refused, 402, "HTTP 402")
	stored, err := dispatch.Box(r.gateway(r.one)).Seal("rich", []byte(cardholder))
	r.must(err)
	key := "spillway:{" + r.one + "}:job:a"
	for _, put := range []string{string(stored), `{"amount":999999,"iban":"CANARY"}`} {
		r.must(r.c.HDel(r.ctx, key, record.Shorts(record.PayloadFields())...).Err())
		r.must(r.c.HSet(r.ctx, key, "p", put).Err())
		show := r.run("show", "a", "--payload", "-o", "json")
		if show.code != 1 || !strings.Contains(show.err, seal.ErrChanged.Error()) || !json.Valid([]byte(show.out)) || strings.Contains(show.out, "CANARY") {
			t.Errorf("show: %+v", show)
		}
		for _, args := range [][]string{{"export"}, {"export", "--plain"}} {
			if got := r.run(args...); got.code != 0 || got.out != "" || !strings.Contains(got.err, "left out: job \"a\"") {
				t.Errorf("%v: %+v", args, got)
			}
		}
	}
}

// Encryption was turned off again. Sealed payloads are still opened, and new payloads are exported in plain.
func TestWithNoActiveKeyOnlyWhatIsSealedStaysSo(t *testing.T) {
	r := newRig(t)
	r.encrypt("k1")
	r.park(r.one, job.Job{ID: "a", Payload: []byte(cardholder)}, job.Refused, 402, "HTTP 402")
	r.activate(`active: ""`)
	r.park(r.one, job.Job{ID: "b", Payload: []byte(cardholder)}, job.Refused, 402, "HTTP 402")
	out := r.run("export")
	if strings.Count(out.out, `"sealed":`) != 1 || strings.Count(out.out, cardholder) != 1 {
		t.Errorf("export: %+v", out)
	}
	if got := r.exported(out.out); got["a"] != cardholder || got["b"] != cardholder {
		t.Errorf("read again: %v", got)
	}
}

// activate changes which key is active.
func (r *rig) activate(active string) {
	r.t.Helper()
	text, err := os.ReadFile(r.file)
	r.must(err)
	r.must(os.WriteFile(r.file, []byte(strings.Replace(string(text), `active: "k1"`, active, 1)), 0o600))
	r.cfg, err = config.Load(r.file, config.Options{Payloads: true})
	r.must(err)
}
