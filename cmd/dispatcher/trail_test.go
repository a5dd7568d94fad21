package main

import (
	"strings"
	"testing"

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
	r.must(r.c.LSet(t.Context(), redisdb.NewKeys(r.one).Trail(), 1, `{"who":"nobody"}`).Err())
	if got := r.command("trail", "verify", "-o", "json"); got.code != 1 || !strings.Contains(got.out, `"findings":["entry 2 of the trail was changed"]`) {
		t.Errorf("%+v", got)
	}
}
