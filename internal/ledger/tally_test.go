package ledger

import "testing"

// TestATallyIsWhatTheScriptWouldAddUp compares the sum of jobs that are alike with that of the books, and has none for others.
func TestATallyIsWhatTheScriptWouldAddUp(t *testing.T) {
	type entry struct{ id, money, traits string }
	for _, c := range []struct {
		name string
		jobs []entry
		want string
	}{
		{"nothing", nil, "0 0"},
		{"no money", []entry{{"a", "", ""}, {"b", "", ""}}, "20 0"},
		{"one currency", []entry{{"a", "1050 EUR", ""}, {"b", "-50 EUR", ""}}, "20 0 EUR=1000,0"},
		{"two currencies and an amount that can't be read", []entry{{"a", "1 EUR", ""}, {"b", "2 USD", ""}, {"c", "-", ""}}, "30 1 EUR=1,0 USD=2,0"},
		{"no currency", []entry{{"a", "7 ", ""}}, "10 0 =7,0"},
		{"more than nine digits", []entry{{"a", "1234567890 EUR", ""}, {"b", "-123456789 EUR", ""}, {"c", "-2000000001 EUR", ""}}, "30 0 EUR=111111100,-1"},
		{"an id twice", []entry{{"a", "1 EUR", ""}, {"a", "1 EUR", ""}}, ""},
		{"traits", []entry{{"a", "1 EUR", ""}, {"b", "1 EUR", "2 0 0   0  "}}, ""},
		{"too many digits", []entry{{"a", "1234567890123456789 EUR", ""}}, ""},
		{"another currency", []entry{{"a", "1 e=1", ""}}, ""},
	} {
		all := tally{ids: map[string]struct{}{}}
		for _, j := range c.jobs {
			all.add(j.id, j.money, j.traits, 10)
		}
		if got := all.text(); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
