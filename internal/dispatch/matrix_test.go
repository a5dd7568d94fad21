package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"spillway/internal/double"
	"spillway/internal/job"
	"spillway/internal/packs"
	"spillway/internal/testkit"
)

// The ends of a job, as the table names them.
const (
	endDone     = "done"     // booked, and charged
	endRefused  = "refused"  // parked: the gateway has said no, and has charged nothing
	endAccepted = "accepted" // parked: the gateway has it, the outcome comes later
	endUnknown  = "unknown"  // parked: nothing is sent again, a person decides
	endLine     = "line"     // it never came in: its id can be no key
	// endTheirs is booked by the answer to somebody else's payment, which has the same key. Nothing in the answer says so: Klarna's has no body to compare with
	// the job. Only keys that nobody shares help.
	endTheirs = "theirs"
)

// row is how a job of one pack that meets one fate ends, for each crash.
type row struct {
	text    string
	fate    string
	options map[string]string
	ends    []string // without a crash, with one before the first write, with one after it; perhaps with one after the second
}

// may returns the allowed ends of a job. A job whose worker dies at its second call may end in any way of those at the first call, unless the row says
// more.
func (r row) may(c crash) []string {
	switch {
	case c.when == "":
		return r.ends[:1]
	case c.call == 1 && c.when == diesBefore:
		return r.ends[1:2]
	case c.call == 1:
		return r.ends[2:3]
	case len(r.ends) > leastEnds && c.when == diesAfter:
		return r.ends[leastEnds:]
	}
	return slices.Compact(slices.Sorted(slices.Values(r.ends)))
}

// choices returns the row's options that say what the double saves, by class of answers.
func (r row) choices() map[string]string {
	chosen := map[string]string{}
	for name, value := range r.options {
		if class, ok := strings.CutPrefix(name, "saved-"); ok {
			chosen[class] = value
		}
	}
	return chosen
}

// hurried reports whether the job's first call does not wait for a slow execution.
func (r row) hurried() bool { return r.fate == "slow" }

// armed returns the fates for the double. A row about the id has none: the double refuses such ids anyway.
func (r row) armed(t *testing.T, id string) []double.Fate {
	t.Helper()
	if r.options["id"] != "" {
		return nil
	}
	if r.options["warm"] != "" {
		id = "*"
	}
	text := r.fate + "=job=" + id
	for _, name := range slices.Sorted(maps.Keys(r.options)) {
		if name != "wait" && name != "warm" && !strings.HasPrefix(name, "saved-") {
			text += "," + name + "=" + r.options[name]
		}
	}
	f, err := double.ParseFate(text)
	if err != nil {
		t.Fatal(err)
	}
	return []double.Fate{f}
}

// leastEnds is the least number of ends of a row.
const leastEnds = 3

// rows reads the table of one pack: on each line the fate, options as name=value, and the ends.
func rows(t *testing.T, table string) (all []row) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(table), "\n") {
		words := strings.Fields(line)
		r := row{options: map[string]string{}}
		for i, w := range words {
			name, value, option := strings.Cut(w, "=")
			switch {
			case i == 0:
				r.fate = w
			case option:
				r.options[name] = value
			default:
				r.ends = append(r.ends, w)
			}
		}
		if len(r.ends) < leastEnds || len(r.ends) > leastEnds+1 {
			t.Fatalf("%q: write the fate, its options and three or four ends", line)
		}
		r.text = strings.Join(words[:len(words)-len(r.ends)], " ")
		all = append(all, r)
	}
	return all
}

// leastCells is the least number of cells, so that none goes missing unnoticed.
const leastCells = 1421

// Each pack meets each fate that its gateway's documents don't exclude, with the double of that gateway. Its worker dies before or after the write of
// the first or second call, or not at all. No job is charged twice, none is done without a charge, none is refused with one, and each ends as the table
// says. At most one call is made that could only get the same answer again.
func TestPacksByFatesByCrashes(t *testing.T) {
	if testkit.Race {
		t.Skip("more than a thousand cells under the race detector keep the processors from tests that wait for them: make test runs it")
	}
	t.Parallel()
	played := &tally{}
	t.Run("cells", func(t *testing.T) {
		for _, name := range double.Names() {
			if !slices.Contains(packs.Names(), name) {
				t.Errorf("%s has a double and no pack", name)
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				playPack(t, name, played)
			})
		}
	})
	for _, name := range packs.Names() {
		if !slices.Contains(double.Names(), name) {
			t.Logf("%s has no double", name)
		}
	}
	played.report(t)
}

// tally counts cells.
type tally struct {
	mu     sync.Mutex
	cells  int
	packs  int
	some   bool     // somebody plays some cells alone
	theirs []string // cells that end as endTheirs
}

// note counts a cell. A cell whose crash did not happen, because its job needed no second call, equals another cell and is not counted.
func (s *tally) note(l *cell) {
	if l.crash.when != "" && !l.died {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cells++
	if slices.Contains(l.row.may(l.crash), endTheirs) {
		s.theirs = append(s.theirs, fmt.Sprintf("%s %s, %s", l.table.Gateway, l.row.text, l.crash))
	}
}

func (s *tally) pack(whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packs++
	s.some = s.some || !whole
}

func (s *tally) report(t *testing.T) {
	t.Helper()
	t.Logf("%d cells of %d packs", s.cells, s.packs)
	if len(s.theirs) > 0 {
		slices.Sort(s.theirs)
		t.Logf("booked by somebody else's answer, since nothing in it can be compared:\n%s", strings.Join(s.theirs, "\n"))
	}
	if s.packs == len(double.Names()) && !s.some && s.cells < leastCells {
		t.Errorf("only %d cells, and there have been %d", s.cells, leastCells)
	}
}

func playPack(t *testing.T, name string, played *tally) {
	t.Helper()
	table, err := double.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	all := rows(t, expected[name])
	for _, fate := range table.FatesOfPayments() {
		if !slices.ContainsFunc(all, func(r row) bool { return r.fate == fate }) {
			t.Errorf("no row for the fate %s", fate)
		}
	}
	like := configured(t, table)
	client, seen, ran := testkit.Client(t), map[string]bool{}, 0
	for i, r := range all {
		for _, how := range allCrashes {
			t.Run(r.text+", "+how.String(), func(t *testing.T) {
				ran++
				l := newCell(t, client, table, like, r, how)
				l.try(fmt.Sprintf("inv-%03d", i))
				for _, call := range l.double.Calls() {
					seen[call.Answer] = true
				}
				played.note(l)
			})
		}
	}
	whole := ran == len(all)*len(allCrashes)
	if played.pack(whole); !whole {
		return
	}
	for _, answer := range slices.Sorted(maps.Keys(table.Answers)) {
		if !seen[answer] && unheard[answer] == "" && unheard[name+" "+answer] == "" {
			t.Errorf("no cell has met the answer %s of the double", answer)
		}
	}
}

// try plays the cell's job and judges the result.
func (l *cell) try(id string) {
	l.t.Helper()
	if l.row.options["id"] == "long" {
		id = strings.Repeat("x", 200)
	}
	if err := l.double.Arm(l.row.armed(l.t, id)...); err != nil {
		l.t.Fatal(err)
	}
	if l.row.options["warm"] != "" { // another job has met the first answer of each list
		l.died = true
		if _, err := l.play("warm-up"); err != nil {
			l.t.Fatal(err)
		}
		l.died, l.waited, l.calling, l.pacer.held = false, false, 0, 0
	}
	rec, refused := l.play(id)
	may, got := l.row.may(l.crash), endOf(rec, refused)
	theirs := slices.Contains(may, endTheirs) && got == endDone
	if !slices.Contains(may, got) && !theirs {
		l.t.Errorf("ends as %s, want %s\n%s", got, strings.Join(may, " or "), l.story(rec))
	}
	if l.crash.call == 1 && !l.died && refused == nil {
		l.t.Errorf("its worker has not died")
	}
	charges, standing := l.charges(id)
	switch {
	case charges > 1:
		l.t.Errorf("charged %d times\n%s", charges, l.story(rec))
	case got == endDone && standing != 1 && !theirs:
		l.t.Errorf("booked, and %d payments stand\n%s", standing, l.story(rec))
	case got == endRefused && charges != 0:
		l.t.Errorf("refused, and charged %d times\n%s", charges, l.story(rec))
	}
	if n := l.futile(id); n > 1 {
		l.t.Errorf("%d calls that could only bring the same answer again\n%s", n, l.story(rec))
	}
	if (got == endDone || got == endAccepted) && rec.Reference == "" && l.g.Reference != "" {
		l.t.Errorf("ends as %s without the gateway's reference\n%s", got, l.story(rec))
	}
}

func endOf(rec job.Record, refused error) string {
	switch {
	case refused != nil:
		return endLine
	case rec.State == job.Done:
		return endDone
	case rec.State != job.Parked:
		return "still " + string(rec.State)
	case rec.Reason == job.Refused:
		return endRefused
	case rec.Reason != job.UnknownOutcome:
		return string(rec.Reason)
	case strings.HasPrefix(rec.Error, "accepted, outcome later"):
		return endAccepted
	}
	return endUnknown
}

// charges returns how many executions charged a job and were not undone, and how many of these payments are final.
func (l *cell) charges(id string) (charges, standing int) {
	for _, e := range l.double.Ledger() {
		if e.Job != id || e.State == "failed" || e.State == "canceled" {
			continue
		}
		charges++
		if e.State != "pending" && e.State != "created" {
			standing++
		}
	}
	return charges, standing
}

// futile returns how many calls got an answer that the job had got before and that waiting can't change. An answer that was lost with its worker does not count.
func (l *cell) futile(id string) (n int) {
	got := map[string]bool{}
	for i, call := range l.double.Calls() {
		if call.Job != id || call.Status == 0 || i == l.unread || l.passes(call.Answer) {
			continue
		}
		if got[call.Answer] {
			n++
		}
		got[call.Answer] = true
	}
	return n
}

// passes reports whether a later call may get another answer.
func (l *cell) passes(answer string) bool {
	for _, begins := range []string{"429", "limit-", "unavailable", "unauthorised", "store-down"} {
		if strings.HasPrefix(answer, begins) {
			return true
		}
	}
	return slices.Contains(l.table.Running, answer) || slices.Contains(l.table.Fates[l.row.fate].Running, answer)
}

// story returns the calls, charges and record of the cell, as text.
func (l *cell) story(rec job.Record) string {
	var b strings.Builder
	for _, c := range l.double.Calls() {
		repeat := ""
		if c.Repeat {
			repeat = " (repeat)"
		}
		fmt.Fprintf(&b, "  %s  %s: %s %d%s\n", c.At.Format("02 15:04:05"), c.Job, c.Answer, c.Status, repeat)
	}
	for _, e := range l.double.Ledger() {
		fmt.Fprintf(&b, "  charged %s for %s, %s\n", e.Amount, e.Job, e.State)
	}
	fmt.Fprintf(&b, "  %s %s, %d attempts spent, key may have charged: %v, reference %q: %s", rec.State, rec.Reason, rec.Spent, rec.Unsure, rec.Reference, rec.Error)
	return b.String()
}
