package main

import (
	"strings"
	"testing"

	"spillway/internal/testkit"
)

// The names of the file, the rejects and the batch, and the reason, are stored, logged and shown. None of them may contain a card number. The error
// does not repeat the number.
func TestNoNameHoldsACardNumber(t *testing.T) {
	t.Parallel()
	for _, n := range testkit.CardNumbers(200) {
		spaced := n[:4] + " " + n[4:8] + "-" + n[8:]
		for flag, f := range map[string]flags{
			"-f": {file: "/var/spool/of-" + n + ".ndjson"}, "--rejects": {rejects: spaced + ".ndjson"}, "--batch": {batch: "b_" + n}, "--why": {why: "of " + spaced + ", again"},
		} {
			if err := f.checkCards(); err == nil || !strings.HasPrefix(err.Error(), flag+" has what") || strings.Contains(err.Error(), n[4:8]) {
				t.Errorf("%s with %s: %v", flag, n, err)
			}
		}
	}
	f := flags{file: "stripe-2026-11-26-0001.ndjson", rejects: "rejects-20261126.ndjson", batch: "2026-11", why: "ticket 4711"}
	if err := f.checkCards(); err != nil {
		t.Error(err)
	}
}
