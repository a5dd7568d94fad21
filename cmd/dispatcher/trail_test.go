package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/internal/deadletter"
	"spillway/internal/redisdb"
)

func TestTrailVerifyNamesWhatWasChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 3 {
		if got := r.command("pause", "-g", r.one, "--why", "a drill"); got.code != 0 {
			t.Fatal(got)
		}
	}
	if got := r.command("trail", "verify"); got.code != 0 || !strings.Contains(got.out, "one\t3\t0\t0\t6\t") {
		t.Fatalf("%+v", got)
	}
	got := r.command("trail", "verify", "-g", r.one, "--head", "6:"+strings.Repeat("0", 64))
	if got.code != 1 || !strings.Contains(got.out, "and not 0000") {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"--head", "6:" + strings.Repeat("0", 64)}, {"-g", r.one, "--head", "6"}} {
		if got := r.command(append([]string{"trail", "verify"}, args...)...); got.code != 2 {
			t.Errorf("%v: %+v", args, got)
		}
	}
	file := filepath.Join(t.TempDir(), "trail.ndjson")
	got = r.command("trail", "export", "-g", r.one)
	if got.code != 0 || strings.Count(got.out, "\n") != 10 {
		t.Fatalf("%+v", got)
	}
	whole := "" // the rig writes TIME for each time
	r.must(deadletter.New(r.c, r.one).ExportTrail(t.Context(), func(l deadletter.TrailLine) error {
		text, err := json.Marshal(l)
		whole += string(text) + "\n"
		return err
	}))
	r.must(os.WriteFile(file, []byte(whole), 0o600))
	if got := r.command("trail", "verify", "--file", file); got.code != 0 || !strings.Contains(got.out, "\t3\t0\t0\t6\t") {
		t.Errorf("%+v", got)
	}
	r.must(os.WriteFile(file, []byte(strings.Replace(whole, "a drill", "a thrill", 1)), 0o600))
	if got := r.command("trail", "verify", "--file", file); got.code != 1 || !strings.Contains(got.out, "entry 1 of the trail was changed") {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"--file", file + "x"}, {"--file", "trail_test.go"}, {"--file", file, "-g", r.one}} {
		if got := r.command(append([]string{"trail", "verify"}, args...)...); got.code != 2 {
			t.Errorf("%v: %+v", args, got)
		}
	}
	r.must(r.c.LSet(t.Context(), redisdb.NewKeys(r.one).Trail(), 1, `{"who":"nobody"}`).Err())
	if got := r.command("audit", "-g", r.one); got.code != 1 || !strings.Contains(got.out, "entry 2 of the trail was changed") {
		t.Errorf("%+v", got)
	}
	if got := r.command("doctor", "-g", r.one); !strings.Contains(got.out, "who did what is not as it was written: entry 2 of the trail was changed") {
		t.Errorf("%+v", got)
	}
	if got := r.command("trail", "verify", "-o", "json"); got.code != 1 || !strings.Contains(got.out, `"findings":["entry 2 of the trail was changed"]`) {
		t.Errorf("%+v", got)
	}
}
