package config

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sealing = `encryption:
  keys: {k2026: "${NEW}", k2025: "${OLD}"}
  active: k2026
` + minimal

// keyOf is a key in base64 whose text holds the canary's.
func keyOf(fill string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)[:32]))
}

func envOf(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestEncryptionKeysComeFromTheEnvironment(t *testing.T) {
	t.Parallel()
	c, err := Parse("f", []byte(sealing), Options{Payloads: true, Env: envOf("NEW", keyOf("n"), "OLD", keyOf("o")+"\n")})
	if err != nil {
		t.Fatal(err)
	}
	e := c.Encryption
	if e.Active != "k2026" || len(e.Keys) != 2 || e.Keys[0].ID != "k2026" || e.Keys[0].Secret.Reveal() != strings.Repeat("n", 32) ||
		e.Keys[1].Secret.Reveal() != strings.Repeat("o", 32) || c.Gateways[0].Encryption != e {
		t.Errorf("got %+v", e)
	}
	if shown := fmt.Sprintf("%v %+v %#v", e, *e, e.Keys); strings.Contains(shown, "nnn") || strings.Contains(shown, "ooo") {
		t.Errorf("a key shows: %s", shown)
	}
}

func TestSealedPayloadsMayBeRequired(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\n  require: true":  "",
		"\n  require: false": "",
		"\n  require: yes":   `f:4:12: encryption.require: "yes" is neither true nor false`,
	} {
		c, err := Parse("f", []byte(strings.Replace(sealing, "active: k2026", "active: k2026"+text, 1)), Options{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err == nil && c.Encryption.Require != strings.Contains(text, "true") {
			t.Errorf("%q: require is %v", text, c.Encryption.Require)
		}
	}
	_, err := Parse("f", []byte(strings.Replace(sealing, "active: k2026", "active: \"\"\n  require: true", 1)), Options{})
	if err == nil || !strings.Contains(err.Error(), "encryption.require: with active") {
		t.Errorf("nothing is sealed, and sealed payloads are required: %v", err)
	}
}

func TestWhoDoesNotTouchPayloadsNeedsNoKeys(t *testing.T) {
	t.Parallel()
	c, err := Parse("f", []byte(sealing), Options{Secrets: true, Env: envOf("NEW", keyOf("n"))})
	if err != nil || c.Encryption.Keys[0].Secret == "" || c.Encryption.Keys[1].Secret != "" {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestFaultsOfKeysNeverShowThem(t *testing.T) {
	t.Parallel()
	secret := keyOf("sk_canary")
	for _, c := range []struct{ name, from, to, new, want string }{
		{"unset", "", "", "", `f:2:17: encryption.keys.k2026: ${NEW} is not set: set it in the environment of this command`},
		{"short", "", "", base64.StdEncoding.EncodeToString([]byte(canary)),
			`f:2:17: encryption.keys.k2026: "${NEW}" holds a key of 9 bytes, and it must have 32: make a key with: openssl rand -base64 32`},
		{"no base64", "", "", canary + "!", `f:2:17: encryption.keys.k2026: "${NEW}" does not hold a key in base64: make a key with: openssl rand -base64 32`},
		{"in the file", `"${NEW}"`, secret, secret,
			`f:2:17: encryption.keys.k2026: a key may not stand in here: put it into the environment or a file of its own, and write ${SPILLWAY_KEY} or ${file:PATH}`},
		{"partly in the file", `"${NEW}"`, `"abc${NEW}"`, secret,
			`f:2:17: encryption.keys.k2026: a key may not stand in here: put it into the environment or a file of its own, and write ${SPILLWAY_KEY} or ${file:PATH}`},
		{"unknown active", "active: k2026", "active: k2027", secret, `f:3:11: encryption.active: "k2027" is not one of the keys: did you mean k2026?`},
		{"no active", "  active: k2026\n", "", secret,
			`f:1:1: encryption.active: is missing: name the key that seals new payloads, or write active: "" to store them as they are`},
		{"no keys", `  keys: {k2026: "${NEW}", k2025: "${OLD}"}` + "\n", "", secret,
			`f:1:1: encryption.keys: is missing: name at least one key, like {k2026: "${SPILLWAY_KEY_2026}"}; make a key with: openssl rand -base64 32`},
		{"no key", `{k2026: "${NEW}", k2025: "${OLD}"}`, "{}", secret, `f:2:3: encryption.keys: there are no keys: make a key with: openssl rand -base64 32`},
		{"the same key", "", "", keyOf("o"),
			`f:2:34: encryption.keys.k2025: this is the same key as k2026: give each id a key of its own; make a key with: openssl rand -base64 32`},
		{"odd id", "k2025", "K/25", secret,
			`f:2:27: encryption.keys["K/25"]: "K/25" is not a key's id: use up to 32 lower-case letters, digits, _ and -, starting with a letter or digit`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := envOf("NEW", c.new, "OLD", keyOf("o"))
			if c.new == "" {
				env = envOf("OLD", keyOf("o"))
			}
			_, err := Parse("f", []byte(strings.Replace(sealing, c.from, c.to, 1)), Options{Payloads: true, Env: env})
			if err == nil || err.Error() != c.want {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
			if shown := fmt.Sprint(err); strings.Contains(shown, secret) || strings.Contains(shown, canary) {
				t.Errorf("the key shows: %s", shown)
			}
		})
	}
}

func TestAKeyMayStandInAFileOfItsOwn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new.key")
	if err := os.WriteFile(path, []byte(keyOf("n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(sealing, "${NEW}", "${file:"+path+"}", 1)
	c, err := Parse("f", []byte(text), Options{Payloads: true, Env: envOf("OLD", keyOf("o"))})
	if err != nil || c.Encryption.Keys[0].Secret.Reveal() != strings.Repeat("n", 32) {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestEncryptionMayOnlyOpen(t *testing.T) {
	t.Parallel()
	text := strings.Replace(sealing, "active: k2026", `active: ""`, 1)
	c, err := Parse("f", []byte(text), Options{Payloads: true, Env: envOf("NEW", keyOf("n"), "OLD", keyOf("o"))})
	if err != nil || c.Encryption.Active != "" {
		t.Errorf("got %+v, %v", c, err)
	}
}
