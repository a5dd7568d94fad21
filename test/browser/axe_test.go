package browser

import (
	"flag"
	"os"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"spillway/internal/testkit"
)

var axe = flag.String("axe", "", "the `file` axe.min.js of npm's axe-core: every page that is pictured is checked with it")

// broken is a rule that a page breaks.
type broken struct {
	ID, Help, Where string
}

// fits checks that nothing of the page is wider than the window.
func (r *rig) fits(name string) {
	r.t.Helper()
	var over int
	var err error
	if !testkit.Within(10*time.Second, 50*time.Millisecond, func() bool { // the style of a page that was just loaded comes a moment later
		over, err = ask(r, chromedp.Evaluate[int](`document.documentElement.scrollWidth - document.documentElement.clientWidth`))
		return err == nil && over <= 0
	}) {
		r.t.Errorf("%s: %d pixels wider than the window, %v", name, over, err)
	}
}

// tallest is how high a page may be on a phone, in pixels: some nine screens. The runbook is a text to read.
const tallest = 8000

// short checks that a page is not endless on a phone.
func (r *rig) short(name string, wide int64) {
	r.t.Helper()
	if wide != 390 || strings.Contains(name, "runbook") {
		return
	}
	if high, err := ask(r, chromedp.Evaluate[int](`document.documentElement.scrollHeight`)); err != nil || high > tallest {
		r.t.Errorf("%s at %d: %d pixels high, and %d are enough, %v", name, wide, high, tallest, err)
	} else {
		r.t.Logf("%s at %d: %d pixels high", name, wide, high)
	}
}

// accessible checks that axe-core finds nothing wrong with the page as it stands now.
func (r *rig) accessible(name string) {
	r.t.Helper()
	script, err := os.ReadFile(*axe)
	if err != nil {
		r.t.Fatal(err)
	}
	all, err := askFor(r, 60*time.Second, chromedp.Evaluate[[]broken](string(script)+`;
axe.run().then(r => r.violations.flatMap(v => v.nodes.map(n => ({ID: v.id, Help: v.help, Where: n.target.join(" ") + ": " + n.failureSummary.replace(/\s+/g, " ")}))))`, chromedp.EvalAwaitPromise))
	if err != nil {
		r.t.Errorf("%s: axe-core: %v", name, err)
	}
	for _, b := range all {
		r.t.Errorf("%s: %s: %s: %s", name, b.ID, b.Help, strings.TrimSpace(b.Where))
	}
}
