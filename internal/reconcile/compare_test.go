package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

const each = 50 // differences of each kind

// books has the records of a gateway, its report, and the differences of the two.
type books struct {
	records []Record
	report  []string
	want    map[Kind]map[string]bool
	rand    *rand.Rand
}

func (b *books) line(id string, minor int, currency, status, reference string) {
	b.report = append(b.report, fmt.Sprintf("%s;%d,%02d;%s;%s;%s", id, minor/100, minor%100, currency, status, reference))
}

// record adds a record. Every second one has no reference.
func (b *books) record(id string, minor int, state job.State) *Record {
	r := Record{ID: id, State: state, Money: fmt.Sprintf("%d EUR", minor), Expected: state == job.Done}
	if b.rand.IntN(2) == 0 && state == job.Done {
		r.Reference = "ch_" + id
	}
	b.records = append(b.records, r)
	return &b.records[len(b.records)-1]
}

// differ makes one difference of each kind.
func (b *books) differ(n int) {
	minor := 1 + b.rand.IntN(1_000_000)
	id := func(k Kind) string {
		name := fmt.Sprintf("%s-%d", k, n)
		if b.want[k] == nil {
			b.want[k] = map[string]bool{}
		}
		b.want[k][name] = true
		return name
	}
	twice := id(ChargedTwice)
	b.record(twice, minor, job.Done)
	b.line(twice, minor, "EUR", "paid", "ch_"+twice)
	b.line(twice, minor, "EUR", "paid", "ch_"+twice)
	open := id(ChargedNotDone)
	b.record(open, minor, []job.State{job.Queued, job.Retrying, job.Parked, job.Discarded, job.Pending}[n%5])
	b.line(open, minor, "EUR", "paid", "")
	missing := id(DoneNotCharged)
	b.record(missing, minor, job.Done)
	if n%2 == 0 {
		b.line(missing, minor, "EUR", "failed", "")
	}
	amount := id(OtherAmount)
	b.record(amount, minor, job.Done)
	b.line(amount, minor+1-2*(n%2), "EUR", "paid", "")
	currency := id(OtherCurrency)
	b.record(currency, minor, job.Done)
	b.line(currency, minor, "GBP", "paid", "")
	doubt := id(RefusedInDoubt)
	b.record(doubt, minor, job.Parked).InDoubt = true
	b.line(doubt, minor, "EUR", "failed", "")
	b.line(id(NotOurs), minor, "EUR", "paid", "")
}

// seeded returns books with a number of lines that agree, and 50 differences of each kind.
func seeded(agree int) *books {
	b := &books{want: map[Kind]map[string]bool{}, rand: rand.New(rand.NewPCG(1, 2))}
	for i := range agree {
		id, minor := fmt.Sprintf("inv-%d", i), 1+b.rand.IntN(1_000_000)
		if i%10 == 0 {
			b.record(id, minor, job.Parked)
			b.line(id, minor, "EUR", "failed", "")
			continue
		}
		b.record(id, minor, job.Done)
		b.line(id, minor, "EUR", "paid", "ch_"+id)
	}
	for n := range each {
		b.differ(n)
	}
	b.rand.Shuffle(len(b.records), func(i, j int) { b.records[i], b.records[j] = b.records[j], b.records[i] })
	b.rand.Shuffle(len(b.report), func(i, j int) { b.report[i], b.report[j] = b.report[j], b.report[i] })
	return b
}

var options = ReportOptions{Columns: Columns{"id", "gross", "currency", "status", "charge"}, Gateway: "g", Format: "csv", Separator: ';', Decimal: ',',
	Done: []string{"paid"}, Refused: []string{"failed"}}

func each2[T any](all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, one := range all {
			if !yield(one, nil) {
				return
			}
		}
	}
}

func reportOf(t *testing.T, text string, opt ReportOptions) *Report {
	t.Helper()
	r, err := NewReport(strings.NewReader(text), opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryDifferenceIsFound(t *testing.T) {
	t.Parallel()
	b := seeded(20_000)
	text := "\ufeffid;gross;currency;status;charge\r\n" + strings.Join(b.report, "\r\n")
	got, dir := map[Kind]map[string]bool{}, t.TempDir()
	result, err := Run(t.Context(), Params{Report: reportOf(t, text, options), Records: each2(b.records), Dir: dir, Found: func(d Difference) error {
		if named, err := os.ReadDir(dir); err != nil || len(named) > 0 {
			return fmt.Errorf("%d temporary files have a name that a kill would leave behind, %w", len(named), err)
		}
		if got[d.Kind] == nil {
			got[d.Kind] = map[string]bool{}
		}
		got[d.Kind][d.ID] = true
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Differences() {
		if !maps.Equal(got[k], b.want[k]) || len(got[k]) != each || result.Differences[k].Jobs != each {
			t.Errorf("%s: %d found, %d counted, want %d: %v", k, len(got[k]), result.Differences[k].Jobs, each, slices.Sorted(maps.Keys(got[k]))[:min(5, len(got[k]))])
		}
	}
	if reported, recorded := fmt.Sprint(result.Agree.Reported), fmt.Sprint(result.Agree.Recorded); reported != recorded || reported == "map[]" {
		t.Errorf("jobs that agree have %s in the report and %s in the records", reported, recorded)
	}
	if result.Agree.Jobs != 20_000 || result.Bad != 0 || result.Lines != int64(len(b.report)) || result.Records != int64(len(b.records)) {
		t.Errorf("%d agree, %d bad lines of %d, %d records", result.Agree.Jobs, result.Bad, result.Lines, result.Records)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%d temporary files are left, %v", len(left), err)
	}
}

func TestOnlyWhatIsClearIsSettled(t *testing.T) {
	t.Parallel()
	parked := time.UnixMicro(1_700_000_000_000_001)
	for _, c := range []struct {
		name  string
		ids   string
		lines string
		r     Record
		want  string
	}{
		{"charged", "", "a;7,00;EUR;paid;ch_1", Record{InDoubt: true, Money: "700 EUR"}, "done line 2 ch_1"},
		{"charged, parked for another reason", "", "a;7,00;EUR;paid;", Record{InDoubt: true, Reason: job.Exhausted, Money: "700 EUR"}, "done line 2 "},
		{"another amount", "", "a;7,01;EUR;paid;ch_1", Record{InDoubt: true, Money: "700 EUR"}, ""},
		{"another currency", "", "a;7,00;USD;paid;ch_1", Record{InDoubt: true, Money: "700 EUR"}, ""},
		{"no amount in the record", "", "a;7,00;EUR;paid;ch_1", Record{InDoubt: true, Money: "-"}, ""},
		{"charged twice", "", "a;7,00;EUR;paid;ch_1\na;7,00;EUR;paid;ch_1", Record{InDoubt: true, Money: "700 EUR"}, ""},
		{"no doubt", "", "a;7,00;EUR;paid;ch_1", Record{Reason: job.Refused, Money: "700 EUR"}, ""},
		{"not parked", "", "a;7,00;EUR;paid;ch_1", Record{State: job.Retrying, InDoubt: true, Money: "700 EUR"}, ""},
		{"its gateway is being asked", "", "a;7,00;EUR;paid;ch_1", Record{State: job.Pending, InDoubt: true, Money: "700 EUR"}, ""},
		{"refused, then charged", "", "a;7,00;EUR;failed;\na;7,00;EUR;paid;ch_1", Record{InDoubt: true, FirstKey: true, Calls: 1, Money: "700 EUR"}, ""},
		{"refused", "", "a;7,00;EUR;failed;", Record{InDoubt: true, FirstKey: true, Calls: 1, Money: "700 EUR"}, "not done line 2 "},
		{"refused twice", "", "a;7,00;EUR;failed;\na;7,00;EUR;failed;", Record{InDoubt: true, FirstKey: true, Calls: 1, Money: "700 EUR"}, "not done line 3 "},
		{"refused, and called twice under one key", "", "a;7,00;EUR;failed;", Record{InDoubt: true, FirstKey: true, Calls: 2, Money: "700 EUR"}, ""},
		{"refused under some key of several", "", "a;7,00;EUR;failed;", Record{InDoubt: true, Calls: 1, Money: "700 EUR"}, ""},
		{"refused under an earlier key", IDIsKey, "a;7,00;EUR;failed;", Record{InDoubt: true, Calls: 1, Keys: []string{"a", "a~2"}, Money: "700 EUR"}, ""},
		{"refused under the present key", IDIsKey, "a~2;7,00;EUR;failed;", Record{InDoubt: true, Calls: 1, Keys: []string{"a", "a~2"}, Money: "700 EUR"}, "not done line 2 "},
		{"charged under an earlier key", IDIsKey, "a;7,00;EUR;paid;ch_1", Record{InDoubt: true, Keys: []string{"a", "a~2"}, Money: "700 EUR"}, "done line 2 ch_1"},
		{"charged under both keys", IDIsKey, "a;7,00;EUR;paid;ch_1\na~2;7,00;EUR;paid;ch_2", Record{InDoubt: true, Keys: []string{"a", "a~2"}, Money: "700 EUR"}, ""},
		{"its reference is the id", IDIsReference, "ch_1;7,00;EUR;paid;", Record{InDoubt: true, Reference: "ch_1", Money: "700 EUR"}, "done line 2 ch_1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opt := options
			opt.IDs, c.r.ID, c.r.ParkedAt = c.ids, "a", parked
			if c.r.State == "" {
				c.r.State = job.Parked
			}
			result, err := Run(t.Context(), Params{Report: reportOf(t, "id;gross;currency;status;charge\n"+c.lines, opt), Records: each2([]Record{c.r}), Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, one := range result.Clear {
				word := "not done"
				if one.Done {
					word = "done"
				}
				got += fmt.Sprintf("%s line %d %s", word, one.Line, one.Reference)
				if one.ID != "a" || !one.ParkedAt.Equal(parked) {
					t.Errorf("settles %+v", one)
				}
			}
			if got != c.want {
				t.Errorf("settles %q, want %q", got, c.want)
			}
		})
	}
}

// TestADoubtfulLineSettlesNothing checks that a job is not resolved if another line may contradict.
func TestADoubtfulLineSettlesNothing(t *testing.T) {
	t.Parallel()
	doubt := Record{ID: "a", State: job.Parked, Reason: job.UnknownOutcome, InDoubt: true, FirstKey: true, Calls: 1, Money: "700 EUR"}
	with := func(change func(*Record)) Record {
		r := doubt
		change(&r)
		return r
	}
	known := with(func(r *Record) { r.Reference = "ch_1" })
	twin := Record{ID: "b", State: job.Done, Money: "700 EUR", Reference: "ch_1", Keys: []string{"k"}}
	byReference := func(o *ReportOptions) { o.IDs = IDIsReference }
	byKey := func(o *ReportOptions) { o.IDs = IDIsKey }
	for _, c := range []struct {
		name    string
		opt     func(*ReportOptions)
		lines   string
		records []Record
		want    string
	}{
		{"failed, then processing", nil, "a;7,00;EUR;failed;\na;7,00;EUR;processing;ch_2", []Record{doubt}, ""},
		{"failed, then paid with an amount that can't be read", nil, "a;7,00;EUR;failed;\na;7.00;EUR;paid;ch_2", []Record{doubt}, ""},
		{"failed, and a line that can't be used of another job", nil, "a;7,00;EUR;failed;\nb;7.00;EUR;paid;ch_2", []Record{doubt}, "a not done"},
		{"failed, and a line without an id", nil, "a;7,00;EUR;failed;\n;7,00;EUR;paid;ch_2", []Record{doubt}, ""},
		{"failed, and a line whose id is none", nil, "a;7,00;EUR;failed;\na ;7,00;EUR;paid;ch_2", []Record{doubt}, ""},
		{"failed, and a line of too few fields", nil, "a;7,00;EUR;failed;\na;7,00", []Record{doubt}, ""},
		{"paid, and a line without an id", nil, "a;7,00;EUR;paid;\n;0,30;EUR;fee;", []Record{doubt}, "a done"},
		{"paid, then failed", nil, "a;7,00;EUR;paid;ch_1\na;7,00;EUR;failed;ch_1", []Record{doubt}, ""},
		{"paid, then processing", nil, "a;7,00;EUR;paid;ch_1\na;7,00;EUR;processing;ch_1", []Record{doubt}, ""},
		{"paid, and a line that can't be used", nil, "a;7,00;EUR;paid;ch_1\na;7.00;EUR;paid;ch_1", []Record{doubt}, ""},
		{"paid under another reference", nil, "a;7,00;EUR;paid;ch_9", []Record{known}, ""},
		{"paid under its reference", nil, "a;7,00;EUR;paid;ch_1", []Record{known}, "a done"},
		{"paid under no reference", nil, "a;7,00;EUR;paid;", []Record{known}, "a done"},
		{"failed under another reference", nil, "a;7,00;EUR;failed;ch_9\na;7,00;EUR;failed;ch_1", []Record{known}, ""},
		{"failed under its reference", nil, "a;7,00;EUR;failed;ch_1", []Record{known}, "a not done"},
		{"a reference of two jobs", byReference, "ch_1;7,00;EUR;paid;", []Record{known, twin}, ""},
		{"a key of two jobs", byKey, "k;7,00;EUR;failed;", []Record{with(func(r *Record) { r.Keys = []string{"k"} }), twin}, ""},
		{"a key of its own, and one of two jobs", byKey, "k;7,00;EUR;paid;\nk2;7,00;EUR;failed;", []Record{with(func(r *Record) { r.ID, r.Keys = "c", []string{"k", "k2"} }), twin}, ""},
		{"minor units without a currency", func(o *ReportOptions) { o.Minor, o.Currency = true, "" }, "a;700;JPY;paid;", []Record{doubt}, ""},
		{"no currency in the record", nil, "a;7,00;EUR;paid;", []Record{with(func(r *Record) { r.Money = "700 " })}, ""},
		{"no currency in either", func(o *ReportOptions) { o.Minor, o.Currency = true, "" }, "a;700;JPY;paid;", []Record{with(func(r *Record) { r.Money = "700 " })}, ""},
		{"a status with a blank", func(o *ReportOptions) { o.Done = []string{"paid", " settled"} }, "a;7,00;EUR;settled;ch_1", []Record{doubt}, "a done"},
		{"a refund", nil, "a;-7,00;EUR;paid;ch_1", []Record{doubt}, ""},
		{"paid, and a refund", nil, "a;7,00;EUR;paid;ch_1\na;-7,00;EUR;paid;ch_1", []Record{doubt}, ""},
		{"a refused refund", nil, "a;-7,00;EUR;failed;ch_1", []Record{doubt}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opt := options
			if c.opt != nil {
				c.opt(&opt)
			}
			result, err := Run(t.Context(), Params{Report: reportOf(t, "id;gross;currency;status;charge\n"+c.lines, opt), Records: each2(c.records), Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, one := range result.Clear {
				got += one.ID + map[bool]string{true: " done", false: " not done"}[one.Done]
			}
			if got != c.want {
				t.Errorf("settles %q, want %q", got, c.want)
			}
			if refund := strings.Contains(c.lines, "-7,00"); (result.Refunds == 1) != refund || result.Differences[NotOurs].Jobs != 0 {
				t.Errorf("%d refunds, %d not ours", result.Refunds, result.Differences[NotOurs].Jobs)
			}
		})
	}
}

// TestARefundIsNoCharge checks that a job that was charged, done and refunded agrees, and that lines without a statement belong to no job.
func TestARefundIsNoCharge(t *testing.T) {
	t.Parallel()
	lines := "a;7,00;EUR;paid;ch_1\na;-7,00;EUR;paid;ch_1\nstranger;-1,00;EUR;paid;\nstranger;1,00;EUR;fee;\nstranger;1.00;EUR;paid;"
	records := []Record{{ID: "a", State: job.Done, Expected: true, Money: "700 EUR", Reference: "ch_1"}}
	result, err := Run(t.Context(), Params{Report: reportOf(t, "id;gross;currency;status;charge\n"+lines, options), Records: each2(records), Dir: t.TempDir()})
	if err != nil || result.Agree.Jobs != 1 || result.Refunds != 2 || result.Bad != 1 || result.Differ() != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestWhatBreaksOffLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	records := func(yield func(Record, error) bool) {
		cancel()
		yield(Record{ID: "a"}, nil)
	}
	_, err := Run(ctx, Params{Report: reportOf(t, "id;gross;currency;status;charge\na;1,00;EUR;paid;x\n", options), Records: records, Dir: dir})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	broken := io.MultiReader(strings.NewReader("id;gross;currency;status;charge\na;1,00;EUR;paid;x\n"), brokenReader{})
	report, err := NewReport(broken, options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Run(t.Context(), Params{Report: report, Records: each2([]Record{}), Dir: dir}); job.CodeOf(err) != job.CodeFailed || !strings.Contains(err.Error(), "the input broke off") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d temporary files are left, %v", len(left), err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("unplugged") }
