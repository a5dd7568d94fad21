package job

import (
	"strings"
	"testing"
)

func TestIDsTravelInAHeader(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "inv-2026/11#4~2", strings.Repeat("x", MaxIDLength), "!\"'{}"} {
		if err := CheckID(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", " a", "a ", "a b", "a\tb", "ä", "a\x7f", strings.Repeat("x", MaxIDLength+1)} {
		if CheckID(bad) == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	for bad, want := range map[string]string{"aä": "'ä' at place 2", "a\xff": `'\xff' at place 2`, "a\u200bb": `'\u200b' at place 2`} {
		if err := CheckID(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want …%s…", bad, err, want)
		}
	}
}

func TestTaskIDsComeApartAgain(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "a~2", "~", "a~"} {
		got, generation, ok := ParseTaskID(TaskID(id, 17))
		if got != id || generation != 17 || !ok {
			t.Errorf("%q came back as %q, %d, %v", id, got, generation, ok)
		}
	}
	for _, foreign := range []string{"", "abc", "~1", "a~0", "a~-1", "a~x", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"} {
		if _, _, ok := ParseTaskID(foreign); ok {
			t.Errorf("%q was taken for a task of ours", foreign)
		}
	}
}

func TestTheFirstKeyIsTheIDItself(t *testing.T) {
	t.Parallel()
	for generation, want := range map[int64]string{0: "inv", 1: "inv", 2: "inv~2", 11: "inv~11"} {
		if got := IdempotencyKey("inv", generation); got != want {
			t.Errorf("key generation %d is %q, want %q", generation, got, want)
		}
	}
}

func TestMoneyIsExact(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"amount":1050,"currency":"eur"}`:                           "1050 EUR",
		`{"amount":"1050","currency":"EUR"}`:                         "1050 EUR",
		`{"amount":123456789012345678901234567890,"currency":"JPY"}`: "123456789012345678901234567890 JPY",
		`{"amount":10.5,"currency":"EUR"}`:                           "error",
		`{"amount":1e3,"currency":"EUR"}`:                            "error",
		`{"currency":"EUR"}`:                                         "error",
		`{"amount":1}`:                                               "error",
		`[]`:                                                         "error",
		`{"amount":"` + strings.Repeat("9", 200) + `","currency":"E"}`: "error",
	} {
		m, err := MoneyOf([]byte(payload), "amount", "currency")
		got := "error"
		if err == nil {
			got = m.Minor.String() + " " + m.Currency
		} else if strings.Contains(err.Error(), "1050") || strings.Contains(err.Error(), "10.5") {
			t.Errorf("the payload is in the error: %v", err)
		}
		if got != want {
			t.Errorf("%.60s: %s, want %s", payload, got, want)
		}
	}
	if m, err := MoneyOf([]byte(`{"a":{"value":7}}`), "a.value", ""); err != nil || m.Minor.Int64() != 7 || m.Currency != "" {
		t.Errorf("a dotted path: %v, %v", m, err)
	}
}
