package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
)

// TestTheSampleFilesGoThrough follows the README: the sample configuration, both billing files, two dispatchers, and
// the strict provider.
func TestTheSampleFilesGoThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{Limits: perSecond100, Service: 20 * time.Millisecond}, plain)
	sample := read(t, "../../examples/dispatcher.yaml")
	sample = regexp.MustCompile(`redis: \S+`).ReplaceAllString(sample, "redis: "+w.redis.URL())
	sample = strings.ReplaceAll(sample, "http://127.0.0.1:9500", w.url)
	w.config = w.file("dispatcher.yaml", sample)
	w.dispatcher()
	w.dispatcher()

	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]struct {
		report
		args  []string
		lines int
	}{
		"november.ndjson": {report{Read: 300, Enqueued: 293, Duplicate: 1, Invalid: 6}, nil, 6},
		"november.csv":    {report{Read: 250, Enqueued: 246, Invalid: 4}, []string{"--id-field", "invoice"}, 4},
	} {
		args := append([]string{"-g", "stripe", "-f", filepath.Join(examples, file), "-o", "json", "--rejects", file + ".rejects"}, want.args...)
		r := w.do("enqueue", args...)
		if got := decode[report](t, r.out); r.code != 3 || got != want.report {
			t.Errorf("%s: exit code %d, report %+v; want 3 and %+v", file, r.code, got, want.report)
		}
		if n := len(regexp.MustCompile(`(?m)^line \d+: `).FindAllString(r.err, -1)); n != want.lines {
			t.Errorf("%s: %d bad lines named, want %d\n%s", file, n, want.lines, r.err)
		}
		again := decode[report](t, w.do("enqueue", args...).out)
		if again.Enqueued+again.Parked != 0 || again.Duplicate != want.Enqueued+want.Duplicate {
			t.Errorf("%s, run again: %+v", file, again)
		}
	}
	w.emptied(t, 60*time.Second, 539)
	if s := w.strict(); s.Charged != 539 || s.Calls != 539 {
		t.Errorf("%d calls and %d charges for 539 jobs", s.Calls, s.Charged)
	}
}
