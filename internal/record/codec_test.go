package record

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"spillway/internal/job"
)

// Listings read the fields that layout.go lists. A field that Parse reads and that is not listed would be empty there.
func TestWhatIsListedIsWhatParseReads(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("layout.go")
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	for _, m := range regexp.MustCompile(`(?:number|at)\("(\w+)"\)|\bh\["(\w+)"\]|field (?::=|=) "(\w+)"`).FindAllSubmatch(source, -1) {
		read = append(read, string(m[1])+string(m[2])+string(m[3]))
	}
	for _, f := range read {
		if !slices.Contains(append(Listed(), PayloadFields()...), f) {
			t.Errorf("Parse reads %q, which is not listed in layout.go", f)
		}
	}
	empty := Parse("g", "j", map[string]string{})
	for _, f := range Listed() {
		values := []string{"7", "1", "1 2 3 done\n", "done 7 1"} // of whatever kind the field is, one of them changes something
		changed := func(v string) bool { return !reflect.DeepEqual(Parse("g", "j", map[string]string{f: v}), empty) }
		if !slices.ContainsFunc(values, changed) {
			t.Errorf("layout.go lists %q, which Parse does not read", f)
		}
	}
}

func TestHistoryComesBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1_700_000_000_123_456)
	first := job.Ending{Called: true, Status: 500, Verdict: job.VerdictRetry, At: at, Took: 20 * time.Millisecond}
	second := job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: at.Add(time.Second), Took: time.Second}
	unsent := job.Ending{Verdict: job.VerdictRetry}
	if unsent.Line() != "" {
		t.Errorf("a call that was not written has the line %q", unsent.Line())
	}
	r := Parse("g", "j", map[string]string{"state": "done", "generation": "3", "history": first.Line() + "\n" + second.Line() + "\nrubbish\n"})
	if len(r.History) != 2 || !r.History[0].At.Equal(at) || r.History[0].Took != first.Took || r.History[1].Status != 200 || r.History[1].Verdict != "done" {
		t.Errorf("history %+v", r.History)
	}
	if r.State != job.Done || r.Generation != 3 || r.Job.Cost != 1 || r.KeyGeneration != 1 {
		t.Errorf("record %+v", r)
	}
}
