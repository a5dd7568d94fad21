package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/roles"
)

const oneGateway = "gateways:\n  stripe:\n    request: {url: \"https://one.example/charge\"}\n    leak: {limits: [100/s]}\n"

// A token may be in the file as its digest, and two may have one name while one is being changed. No output of a configuration shows a token.
func TestTokensWithNames(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte(canary + "_two"))
	c := parse(t, "tokens:\n  - {name: billing, role: producer, secret: \"${CANARY}\", gateways: [stripe], expires: 2027-01-01}\n"+
		"  - {name: billing, role: producer, sha256: "+hex.EncodeToString(sum[:])+", gateways: [stripe]}\n  - {name: ann@example, role: admin, secret: "+canary+"_three, expires: \"2027-01-01T13:00:00+01:00\"}\n"+oneGateway)
	if len(c.Tokens) != 3 || !c.Guarded() {
		t.Fatalf("%+v", c.Tokens)
	}
	one, two, three := c.Tokens[0], c.Tokens[1], c.Tokens[2]
	if one.SHA256 != sha256.Sum256([]byte(canary)) || one.Length != len(canary) || one.Role != roles.Producer || !one.Expires.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", one)
	}
	if two.SHA256 != sum || two.Length != 0 || two.Gateways[0] != "stripe" || !two.Expires.IsZero() {
		t.Errorf("%+v", two)
	}
	if three.Name != "ann@example" || three.Gateways != nil || !three.Expires.Equal(time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", three)
	}
	if text := fmt.Sprintf("%+v %#v", c, c); strings.Contains(text, canary) {
		t.Error("a token is printed")
	}
}

// A command that works on Redis itself needs no token of the HTTP side, and so not its variable.
func TestTokensAreForWhoServes(t *testing.T) {
	t.Parallel()
	text := "tokens: [{name: ann, role: viewer, secret: \"${NO_SUCH_VARIABLE}\"}]\n" + oneGateway
	c, err := Parse("x.yaml", []byte(text), Options{Env: testEnv})
	if err != nil || len(c.Tokens) != 1 {
		t.Fatalf("%v %v", c, err)
	}
}
