package verify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const base = 1_790_000_000_000_000 // some moment, in µs since 1970

func input(name, text string) Input { return Input{Name: name, Reader: strings.NewReader(text)} }

// judged returns the verdict on a log and books of NDJSON or CSV.
func judged(t *testing.T, log, books string, change func(*Params)) *Result {
	t.Helper()
	p := Params{Logs: []Input{input("log", log)}, Books: []Input{input("books", books)}, Most: 10, Slack: -1, Dir: t.TempDir()}
	if change != nil {
		change(&p)
	}
	r, err := Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func limits(t *testing.T, texts ...string) (all []Limit) {
	t.Helper()
	for _, text := range texts {
		l, err := ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// done returns the line of a done job in the books.
func done(id string) string {
	return fmt.Sprintf(`{"id":%q,"gateway":"g","state":"done","status":200,"called_at":"2026-11-26T20:00:00.000001Z"}`+"\n", id)
}

// TestWindowsAreThoseOfBruteForce draws arrivals at random, on and around the edges of windows, and compares with a plain count of each window.
func TestWindowsAreThoseOfBruteForce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		window, n := int64(1+r.IntN(50)), 1+r.IntN(6)
		var at []int64
		for now := int64(base); len(at) < 60; now += []int64{0, 1, window - 1, window, window / int64(n), window + 1}[r.IntN(6)] {
			at = append(at, now)
		}
		most, over := 0, int64(0)
		for _, end := range at {
			in := 0
			for _, a := range at {
				if a > end-window && a <= end {
					in++
				}
			}
			most = max(most, in)
		}
		for i, end := range at { // in the order of arrival: those before, and those at the same moment that came before
			in := 0
			for _, a := range at[:i+1] {
				if a > end-window {
					in++
				}
			}
			if in > n {
				over++
			}
		}
		var log strings.Builder
		for _, i := range r.Perm(len(at)) {
			fmt.Fprintf(&log, `{"at":%d,"key":"a","charged":false,"status":200}`+"\n", at[i])
		}
		got := judged(t, log.String(), done("a"), func(p *Params) {
			p.Limits, p.Memory = limits(t, fmt.Sprintf("%d/%dus", n, window)), 2000
		})
		l := got.Limits[0]
		if l.Most != int64(most) || l.Over != over || (got.Counts[Window] > 0) != (most > n) || l.Calls != 60 {
			t.Fatalf("seed %d, %d/%dus: most %d, over %d, %d stretches; brute force has %d and %d", seed, n, window, l.Most, l.Over, got.Counts[Window], most, over)
		}
	}
}

func TestALimitIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"100/s", "5000/m", "300/10s", "1/10ms", "path=25/s", "path:/v1/refunds=5/s", "header:X-Lane=5/s", "header:X-Lane:a=b=5/s", "100/s@stripe", "path=2/h@a-1"} {
		if l, err := ParseLimit(text); err != nil || l.String() != text {
			t.Errorf("%s: %+v, %v", text, l, err)
		}
	}
	for _, text := range []string{"", "100", "100/x", "0/s", "-1/s", "100/1ns", "1/1500ns", "=5/s", "lane=5/s", "header:=5/s", "path:=5/s", "100/s@", "100/s@Stripe", "9/s@a@b"} {
		if l, err := ParseLimit(text); err == nil {
			t.Errorf("%s is read as %+v", text, l)
		}
	}
}

// A foreign log, as CSV, with its own names and headers, and without a column for charges.
func TestALogCanBeCSV(t *testing.T) {
	t.Parallel()
	log := "\ufeffat,key,status,amount,currency,path,header:X-Lane,more\r\n" +
		"2026-11-26T20:00:00.000001Z,p-a,503,,,/v1,x,\r\n" +
		"2026-11-26T20:00:00.000002Z,p-a,200,490,eur,/v1,x,\r\n" +
		"2026-11-26T20:00:00.000003Z,p-a,200,490,eur,/v1,y,\r\n" +
		"2026-11-26T20:00:00.000004Z,p-b~2,201,7,EUR,/v2,y,\r\n" +
		"2026-11-26T20:00:00.000005Z,p-=c,402,,,/v2,y,\r\n" +
		"not a time,p-b,200,,,,,\r\nshort\r\n"
	books := "id,gateway,state,reason,amount,currency,status,called_at,settled_as\n" +
		"a,g,done,,490,EUR,200,2026-11-26T20:00:00Z,\nb,g,done,,7,EUR,201,2026-11-26T20:00:00Z,\n'=c,g,parked,refused,9,EUR,402,2026-11-26T20:00:00Z,\n"
	r := judged(t, log, books, func(p *Params) {
		p.KeyPrefix, p.Limits = "p-", limits(t, "path=2/s", "header:x-lane=2/s", "header:X-Lane:y=3/s", "path:/v2=2/s")
	})
	if want := map[Kind]int64{Window: 2, Unreadable: 2}; !maps.Equal(r.Counts, want) {
		t.Errorf("%v, want %v: %+v", r.Counts, want, r.Findings)
	}
	if g := r.Gateways[0]; g.Charges != 2 || g.Calls != 5 || g.Done != 2 || r.Violations() != 2 {
		t.Errorf("%+v", g)
	}
	last := r.Findings[len(r.Findings)-1]
	if last.Where[0] != (Place{"log", 8}) || !strings.Contains(last.Text, "1 fields, and the header has 8") {
		t.Errorf("%+v", last)
	}
}

// TestWithoutKeysEachSuccessCharges checks that each success charges without keys, and only the first one under a key. What the log says itself overrides that.
func TestWithoutKeysEachSuccessCharges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		call string
		want int64
	}{
		{`"id":"a","status":200`, 2}, {`"key":"a","status":200`, 1}, {`"id":"a","status":503`, 0}, {`"key":"a","status":200,"charged":true`, 2},
		{`"id":"a","status":200,"charged":false`, 0}, {`"id":"a","status":200,"look":true`, 0}, {`"key":"a","status":0,"charged":true`, 2},
	} {
		log := `{"at":1790000000000000,` + c.call + "}\n" + `{"at":1790000000000001,` + c.call + "}\n"
		if r := judged(t, log, done("a"), nil); r.Gateways[0].Charges != c.want || r.Counts[ChargedTwice] != c.want/2 {
			t.Errorf("%s: %d charges, want %d: %v", c.call, r.Gateways[0].Charges, c.want, r.Counts)
		}
	}
}

// TestLinesThatCantBeUsed checks that such lines say what is wrong with them, and stop nothing.
func TestLinesThatCantBeUsed(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"at":1790000000,"key":"a"}`:                             "no time in microseconds",
		`{"at":1790000000000000000,"key":"a"}`:                    "no time in microseconds",
		`{"key":"a"}`:                                             "at is missing",
		`{"at":1790000000000000}`:                                 "neither id nor key",
		`{"at":1790000000000000,"key":"a\u0000b"}`:                "NUL",
		`{"at":1790000000000000,"key":"a","amount":49.5}`:         `"49.5" is no whole number`,
		`{"at":1790000000000000,"key":"a","status":"ok"}`:         "should be a whole number",
		`{"at":1790000000000000,"key":"a","charged":"perhaps"}`:   "should be true or false",
		`{"at":1790000000000000,"key":{"a":1}}`:                   "it has parts",
		`{"at":1790000000000000,"key":"a"`:                        "no line of JSON",
		`{"at":"2026-11-26 20:00","key":"a"}`:                     "write microseconds since 1970",
		`{"at":1790000000000000,"key":"a","headers":{"x":["y"]}}`: "it has parts",
	} {
		r := judged(t, line+"\n\n"+`{"at":1790000000000000,"key":"a","status":200}`, done("a"), nil)
		if r.Counts[Unreadable] != 1 || r.Violations() != 0 || !strings.Contains(r.Findings[0].Text, want) || r.OK {
			t.Errorf("%s: %+v, want %q", line, r.Findings, want)
		}
	}
}

// The list of findings is bounded, but all are counted.
func TestFindingsAreBounded(t *testing.T) {
	t.Parallel()
	var books strings.Builder
	for i := range 1000 {
		books.WriteString(done(fmt.Sprint("inv-", i)))
	}
	r := judged(t, "", books.String(), func(p *Params) { p.Most = 100 })
	if r.Counts[Lost] != 1000 || len(r.Findings) != 100 {
		t.Errorf("%v, %d listed", r.Counts, len(r.Findings))
	}
}

// TestWrongUse checks that input that can't be compared is reported and not judged.
func TestWrongUse(t *testing.T) {
	t.Parallel()
	two := done("a") + strings.Replace(done("b"), `"g"`, `"h"`, 1)
	call := `{"at":1790000000000000,"key":"a","status":200}`
	for _, c := range []struct {
		name, log, books, want string
		change                 func(*Params)
	}{
		{"no books", call, "", "the books have no job", nil},
		{"a log of nobody's", call, two, "does not say of which gateway", nil},
		{"a gateway without a log", call, two, "jobs of h, and there is no log", func(p *Params) { p.Logs[0].Gateway = "g" }},
		{"no CSV of ours", "when,what\n1,2\n", done("a"), `the column "at"`, nil},
		{"a trail that is none", call, done("a"), "is no NDJSON", func(p *Params) { in := input("trail", "a,b\n"); p.Trail = &in }},
	} {
		p := Params{Logs: []Input{input("log", c.log)}, Books: []Input{input("books", c.books)}, Dir: t.TempDir()}
		if c.change != nil {
			c.change(&p)
		}
		_, err := Run(t.Context(), p)
		var wrong *WrongUse
		if !errors.As(err, &wrong) || !strings.Contains(wrong.Message, c.want) || wrong.Hint == "" {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if r := judged(t, call, two, func(p *Params) { p.Gateways = []string{"g"} }); !r.OK || r.Gateways[0].Jobs != 1 {
		t.Errorf("one gateway alone: %+v", r)
	}
}

// TestJobsOfAFile has a billing file as the list of jobs, with ids in another field, some of them numbers.
func TestJobsOfAFile(t *testing.T) {
	t.Parallel()
	for _, jobs := range []string{`{"invoice":{"no":10000000000000001}}` + "\n" + `{"invoice":{"no":"b"}}`, "invoice.no,x\n10000000000000001,\nb,\n"} {
		r := judged(t, `{"at":1790000000000000,"key":"10000000000000001","status":200}`, done("10000000000000001"), func(p *Params) {
			in := input("jobs", jobs)
			p.Jobs, p.IDField = &in, "invoice.no"
		})
		if want := map[Kind]int64{InNeither: 1}; !maps.Equal(r.Counts, want) || r.Findings[0].ID != "b" {
			t.Errorf("%v: %+v", r.Counts, r.Findings)
		}
	}
}

// TestWhatIsInDoubtIsNoViolation has a charged job in each state, and checks whether the books may leave it there.
func TestWhatIsInDoubtIsNoViolation(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]Kind{
		"in_flight": "", "retrying": "", "pending": "", "queued": "", "forgotten": "", "done": "",
		"parked/unknown_outcome": "", "parked/exhausted": "", "parked/paused": "", "discarded/unknown_outcome": "",
		"parked/refused": ChargedNotDone, "parked/cancelled": ChargedNotDone, "parked/expired": ChargedNotDone, "discarded/refused": ChargedNotDone,
	} {
		in, reason, _ := strings.Cut(state, "/")
		line := strings.Replace(done("a"), `"done"`, fmt.Sprintf(`%q,"reason":%q`, in, reason), 1)
		r := judged(t, `{"at":1790000000000000,"key":"a","status":200,"charged":true}`, line, nil)
		if (want == "") != r.OK || r.Counts[want] != int64(len(r.Findings)) {
			t.Errorf("%s: %v, want %q", state, r.Counts, want)
		}
	}
}

// TestOrder checks the order of calls. Jobs that were accepted at the same moment have no order, unless the lines have one.
func TestOrder(t *testing.T) {
	t.Parallel()
	book := func(id, accepted, lane string) string {
		return fmt.Sprintf(`{"id":%q,"gateway":"g","state":"done","lane":%q,"accepted_at":%s,"called_at":%s}`+"\n", id, lane, accepted, accepted)
	}
	call := func(id string, second int) string {
		return fmt.Sprintf(`{"at":%d,"key":%q,"status":200}`+"\n", base+second*1_000_000, id)
	}
	books := book("a", "1790000000000000", "") + book("b", "1790000000000000", "") + book("c", "1790000000000001", "") + book("d", "1790000000000002", "x")
	log := call("b", 1) + call("a", 20) + call("c", 5) + call("d", 0)
	for _, c := range []struct {
		ordered bool
		slack   time.Duration
		want    []string
	}{
		{false, 10 * time.Second, []string{"a"}}, // behind it is c
		{false, 15 * time.Second, nil},
		{true, 15 * time.Second, []string{"a"}}, // behind it is b, too
		{true, 19 * time.Second, nil},
		{true, -1, nil},
	} {
		r := judged(t, log, books, func(p *Params) { p.Ordered, p.Slack = c.ordered, c.slack })
		var got []string
		for _, f := range r.Findings {
			got = append(got, f.ID)
		}
		if !slices.Equal(got, c.want) || r.Counts[Order] != int64(len(got)) {
			t.Errorf("ordered %v, slack %v: %v, want %v", c.ordered, c.slack, got, c.want)
		}
	}
}

// TestSortedInFiles checks that input that does not fit into memory is sorted too, and that no files are left.
func TestSortedInFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, r := newSorter(dir, 10_000), rand.New(rand.NewPCG(1, 2))
	var want []string
	for i := range 5000 {
		key := fmt.Sprint(r.IntN(1000))
		want = append(want, fmt.Sprintf("%s %05d", key, i))
		if err := s.put([]byte(key), fmt.Appendf(nil, "%05d", i)); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortStableFunc(want, func(a, b string) int {
		return strings.Compare(a[:strings.Index(a, " ")], b[:strings.Index(b, " ")])
	})
	var got []string
	if err := s.each(t.Context(), func(key, value []byte) error {
		got = append(got, string(bytes.Join([][]byte{key, value}, []byte(" "))))
		return nil
	}); err != nil || len(s.runs) < 10 {
		t.Fatal(err, len(s.runs))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d of %d items are as they should be", len(got), len(want))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d files have a name that a kill would leave behind, %v", len(left), err)
	}
	s.close()
}

// TestSortedNumbers checks that bytes compare like the numbers.
func TestSortedNumbers(t *testing.T) {
	t.Parallel()
	last := packed(nil)
	for _, n := range []int64{-1 << 63, -5, -1, 0, 1, 255, 256, base, 1<<63 - 1} {
		next := packed(nil).sorted(n)
		if len(last) > 0 && bytes.Compare(last, next) >= 0 || number(next, 0) != n {
			t.Errorf("%d", n)
		}
		last = next
	}
}

type unplugged struct{}

func (unplugged) Read([]byte) (int, error) { return 0, errors.New("unplugged") }

// TestAFileThatBreaksOffIsNoVerdict checks that half of a log gives no verdict.
func TestAFileThatBreaksOffIsNoVerdict(t *testing.T) {
	t.Parallel()
	log := Input{Name: "log", Reader: io.MultiReader(strings.NewReader(`{"at":1790000000000000,"key":"a","status":200}`+"\n"), unplugged{})}
	if r, err := Run(t.Context(), Params{Logs: []Input{log}, Books: []Input{input("books", done("a"))}}); err == nil || !strings.Contains(err.Error(), "log broke off: unplugged") {
		t.Errorf("%+v, %v", r, err)
	}
}
