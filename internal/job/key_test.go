package job

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestAKeyIsTheSameForTheSameJobAndNoOther(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"", KeyID, KeyUUID, KeyHash} {
		seen := map[string]string{}
		for _, prefix := range []string{"", "eu-"} {
			for _, key := range []string{"inv-1", "inv-1~2", "inv-10", "eu-inv-1x"} {
				text := KeyShape{Name: "K", Prefix: prefix, Form: form}.Text(key)
				if again := (KeyShape{Name: "K", Prefix: prefix, Form: form}).Text(key); again != text {
					t.Errorf("%s of %s: %s and %s", form, prefix+key, text, again)
				}
				if other, taken := seen[text]; taken {
					t.Errorf("%s of %s and of %s is %s", form, prefix+key, other, text)
				}
				seen[text] = prefix + key
			}
		}
	}
	id, err := uuid.Parse(KeyShape{Name: "K", Form: KeyUUID}.Text("inv-1"))
	if err != nil || id.Version() != 5 || id.Variant() != uuid.RFC4122 {
		t.Errorf("%s, %v", id, err)
	}
	if got := (KeyShape{Name: "K", Form: KeyUUID}).Text("inv-1"); got != "e33558d6-6d68-56d5-9896-bb7c3134ab27" {
		t.Errorf("%s: another key than the versions before make for that job", got)
	}
	if hash := (KeyShape{Name: "K", Form: KeyHash}).Text("inv-1"); len(hash) != 32 || strings.Trim(hash, "0123456789abcdef") != "" {
		t.Error(hash)
	}
}

func TestAnIDThatCanBeNoKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		k    KeyShape
		id   string
		want string // part of the error; empty: there is none
	}{
		{KeyShape{}, strings.Repeat("x", 200), ""},
		{KeyShape{Name: "K"}, strings.Repeat("x", 200), ""},
		{KeyShape{Name: "K", Max: 10}, "12345678", ""},
		{KeyShape{Name: "K", Max: 10}, "123456789", "up to 11 characters, and the gateway takes no more than 10"}, // ~2 has no room
		{KeyShape{Name: "K", Max: 10, Prefix: "eu-"}, "123456", "no more than 10"},
		{KeyShape{Name: "K", Max: 40, Form: KeyUUID}, strings.Repeat("x", 200), ""},
		{KeyShape{Name: "K", Max: 40, Form: KeyHash, Alphabet: "a-z0-9"}, "ü?", ""},
		{KeyShape{Name: "K", Min: 4}, "abc", "no fewer than 4"},
		{KeyShape{Name: "K", Min: 4}, "abcd", ""},
		{KeyShape{Name: "K", Alphabet: "a-z~0-9"}, "abc1", ""},
		{KeyShape{Name: "K", Alphabet: "a-z"}, "abc", "for a second try (abc~2)"},
		{KeyShape{Name: "K", Alphabet: "a-z~0-9"}, "a_c", "it takes a-z~0-9"},
	} {
		err := tc.k.Check(tc.id)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v, %s: %v, want %q", tc.k, tc.id, err, tc.want)
		}
		if err != nil && !tc.k.Picky() {
			t.Errorf("%+v refuses an id and is not picky", tc.k)
		}
	}
}
