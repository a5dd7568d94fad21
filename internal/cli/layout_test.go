package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever a table contains, no line is wider than the terminal, and no character is lost.
func TestATableStaysOnItsTerminal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := setup()
		f.OutTerminal, f.OutWidth = true, rapid.IntRange(20, 200).Draw(t, "width")
		columns := rapid.IntRange(1, 12).Draw(t, "columns")
		titles := rapid.SliceOfN(rapid.StringMatching(`[A-Z]{2,10}`), columns, columns).Draw(t, "titles")
		table, put := NewTable(f.Streams, time.Now(), titles...), ""
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			row := make([]any, columns)
			for i := range row {
				text := rapid.StringMatching(`([0-9é漢]{1,40}[ ,]?){1,5}`).Draw(t, "cell")
				row[i], put = Uncut(text), put+text
			}
			table.Row(row...)
		}
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		got := f.out.String()
		for line := range strings.SplitSeq(got, "\n") {
			if cells(line) > f.OutWidth {
				t.Fatalf("a line takes %d columns of %d: %q\n%s", cells(line), f.OutWidth, line, got)
			}
		}
		for _, r := range "0123456789é漢" {
			if n, want := strings.Count(got, string(r)), strings.Count(put, string(r)); n != want {
				t.Fatalf("%q is shown %d times, and was put in %d times:\n%s", r, n, want, got)
			}
		}
	})
}

func TestATableOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	show := func(width int, titles []string, rows ...[]any) string {
		f := setup()
		f.OutTerminal, f.OutWidth = true, width
		table := NewTable(f.Streams, time.Now(), titles...)
		for _, row := range rows {
			table.Row(row...)
		}
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		return f.out.String()
	}
	long := Uncut("no dispatcher has ever served the gateway")
	for _, c := range []struct{ name, got, want string }{
		{"it fits", show(18, []string{"GATEWAY", "DONE"}, []any{"stripe", 1000000}), "GATEWAY  DONE\nstripe   1,000,000\n"},
		{"the widest wraps", show(40, []string{"FIELD", "VALUE"}, []any{"why", long}, []any{"id", "a"}),
			"FIELD  VALUE\nwhy    no dispatcher has ever served the\n       gateway\nid     a\n"},
		{"no room beside", show(30, []string{"GATEWAY", "IN FLIGHT", "PARKED", "WHY"}, []any{"stripe", 1, "refused 29", long}, []any{"adyen", 2, nil, nil}),
			"GATEWAY  IN FLIGHT  PARKED\nstripe   1          refused 29\n  why: no dispatcher has\n    ever served the gateway\nadyen    2          -\n"},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.name, c.got, c.want)
		}
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 20, []string{""}},
		{"as it  is", 20, []string{"as it  is"}},
		{"between words it breaks", 20, []string{"between words it", "  breaks"}},
		{`see it with "dispatcher dlq"`, 24, []string{"see it with", `  "dispatcher dlq"`}},
		{`"what is in quotes is longer than a line"`, 20, []string{`"what is in quotes`, "  is longer than a", `  line"`}},
		{"  moved in from the start", 20, []string{"  moved in from", "    the start"}},
		{strings.Repeat("x", 30), 20, []string{strings.Repeat("x", 18), "  " + strings.Repeat("x", 12)}},
		{strings.Repeat("漢", 11), 3, []string{strings.Repeat("漢", 9), "  漢漢"}},
	} {
		if got := Wrap(c.text, c.width, 2); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
			t.Errorf("%q in %d columns:\n%q, want\n%q", c.text, c.width, got, c.want)
		}
	}
}

// On a terminal, errors, hints, remarks and questions break between words. Elsewhere lines do not break.
func TestSentencesBreakBetweenWordsOnATerminal(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{0: "x: one two three four\nhint: see \"x y z\"\n", 20: "x: one two three\n  four\nhint: see \"x y z\"\n"} {
		f := setup()
		f.ErrWidth, f.OutWidth = width, width
		PrintError(f.Say(), "x", Usage(`see "x y z"`, "one two three four"))
		if got := f.err.String(); got != want {
			t.Errorf("in %d columns: %q, want %q", width, got, want)
		}
		if got, want := f.Hang("warn  ", "one two three four five"), map[int]string{0: "warn  one two three four five\n",
			20: "warn  one two three four\n      five\n"}[width]; got != want {
			t.Errorf("in %d columns: %q, want %q", width, got, want)
		}
	}
}
