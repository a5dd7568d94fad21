package main

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/internal/console"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

var (
	heldRow   = regexp.MustCompile(`Would be held back: (\d+) jobs?\. ([^<]*)\.</p>`)
	reasonRow = regexp.MustCompile(`<span class="reason (\w+)">[^<]*</span></th><td class="n">(\d+)</td>`)
	sumRow    = regexp.MustCompile(`together</th><td class="n">(\d+)</td>`)
)

// foreseen is what a preview says.
type foreseen struct {
	jobs, held int
	reasons    map[string]int
	why        map[string]int
}

func (f foreseen) String() string {
	return fmt.Sprintf("%d jobs %v, %d held back %v", f.jobs, f.reasons, f.held, f.why)
}

func foreseenOnPage(page string) foreseen {
	f := foreseen{reasons: map[string]int{}, why: map[string]int{}}
	number := func(text string) int { n, _ := strconv.Atoi(text); return n }
	for _, m := range heldRow.FindAllStringSubmatch(page, -1) {
		f.held += number(m[1])
		f.why[html.UnescapeString(m[2])] = number(m[1])
	}
	for _, m := range reasonRow.FindAllStringSubmatch(page, -1) {
		f.reasons[m[1]] = number(m[2])
	}
	if m := sumRow.FindStringSubmatch(page); m != nil {
		f.jobs = number(m[1])
	}
	return f
}

// The console and the command line show the same numbers for the same filter, whatever jobs there are.
func TestEveryPreviewSaysTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.park(r.one, charge("old", "7", "b1"), job.Refused, 402, "HTTP 402")
	r.must(r.c.HDel(r.ctx, redisdb.NewKeys(r.one).Job("old"), "m").Err()) // as an old version left it: the payload alone says the money
	r.park(r.one, charge("doubt", "8", ""), job.Exhausted, 500, "HTTP 500")
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).Job("doubt"), "am", "1").Err())
	late := charge("late", "9", "b1")
	late.Expires = time.Now().Add(time.Hour)
	r.park(r.one, late, job.Cancelled, 0, "cancelled")
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).Job("late"), "x", "1").Err())
	page := httptest.NewServer(console.New(console.Config{Redis: r.c, Gateways: r.cfg.Gateways, Guard: httpapi.NewGuard("")}))
	t.Cleanup(page.Close)
	verbs := map[string][]string{"replay": {"replay"}, "discard": {"discard", "--why", "w"}, "done": {"resolve", "--done", "--why", "w"},
		"not-done": {"resolve", "--not-done", "--why", "w"}}
	filters := []url.Values{{}, {"reason": {"refused"}}, {"batch": {"b1"}}, {"match": {"HTTP"}}, {"reason": {"exhausted"}, "batch": {"b1"}}, {"since": {"1h"}}, {"id": {"old"}}}
	for do, verb := range verbs {
		for _, filter := range filters {
			for _, gateway := range []string{r.one, r.two} {
				args := append([]string{}, verb...)
				for flag, values := range filter {
					args = append(args, "--"+flag, values[0])
				}
				if gateway == r.two && (filter.Has("id") || filter.Has("batch")) {
					continue // the command says that it is not there
				}
				q := url.Values{"do": {do}}
				for k, v := range filter {
					q[k] = v
				}
				got := foreseenOnPage(r.fetch(page.URL + "/gateways/" + gateway + "/clear?" + q.Encode()))
				var doc cleared
				said := r.run(append(args, "-g", gateway, "--dry-run", "-o", "json")...)
				if err := json.Unmarshal([]byte(said.out), &doc); err != nil {
					t.Fatalf("%v: %+v", args, said)
				}
				want := foreseen{jobs: int(doc.Jobs), held: doc.HeldBack, reasons: map[string]int{}, why: doc.Why}
				for reason, of := range doc.ByReason {
					want.reasons[string(reason)] = int(of.Jobs)
				}
				if got.String() != want.String() {
					t.Errorf("%s: the console says %s, the command %s", strings.Join(args, " "), got, want)
				}
			}
		}
	}
}

func (r *rig) fetch(address string) string {
	r.t.Helper()
	answer, err := http.Get(address)
	r.must(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	r.must(err)
	if answer.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %d %s", address, answer.StatusCode, body)
	}
	return string(body)
}
