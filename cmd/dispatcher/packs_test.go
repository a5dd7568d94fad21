package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/packs"
)

func TestPacks(t *testing.T) {
	t.Parallel()
	run := func(args ...string) (string, int) {
		var out bytes.Buffer
		code := cli.Main(name, newCommand, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		return out.String(), code
	}
	if out, code := run("packs", "list"); code != 0 || strings.Count(out, "\n") != len(packs.Names()) || !strings.Contains(out, "stripe/v1") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	out, code := run("packs", "list", "-o", "json")
	var all struct{ Packs []packs.Pack }
	if err := json.Unmarshal([]byte(out), &all); code != 0 || err != nil || len(all.Packs) != len(packs.Names()) || all.Packs[0].Gateway == nil {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
	if out, code := run("packs", "show", "stripe/v1"); code != 0 || !strings.HasPrefix(out, "# ") && !strings.HasPrefix(out, "pack: ") || !strings.Contains(out, "https://docs.stripe.com/") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, code := run("packs", "show", "stripe/v1", "-o", "json"); code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, code := run("packs", "show", "strype/v1"); code != cli.ExitNotFound || !strings.Contains(out, "did you mean stripe/v1?") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
