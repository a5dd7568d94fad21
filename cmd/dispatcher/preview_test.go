package main

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/internal/console"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

var (
	heldRow   = regexp.MustCompile(`Would be held back: (\d+) jobs?\. ([^<]*)\.</p>`)
	reasonRow = regexp.MustCompile(`<span class="reason (\w+)">[^<]*</span></th><td class="n">(\d+)</td>`)
	sumRow    = regexp.MustCompile(`together</th><td class="n">(\d+)</td>`)
)

// foreseen is the numbers of a preview.
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

// The console and the command line show the same numbers for the same filter, with jobs of all kinds.
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
	page := r.console()
	filters := []url.Values{{}, {"reason": {"refused"}}, {"batch": {"b1"}}, {"match": {"HTTP"}}, {"reason": {"exhausted"}, "batch": {"b1"}}, {"since": {"1h"}}, {"id": {"old"}}}
	for do, verb := range previewed {
		for _, filter := range filters {
			for _, gateway := range []string{r.one, r.two} {
				if gateway == r.two && (filter.Has("id") || filter.Has("batch")) {
					continue // the command says that it is not there
				}
				got := foreseenOnPage(r.fetch(clearAt(page, gateway, do, filter)))
				var doc cleared
				args := previewArgs(verb, filter, gateway)
				said := r.run(args...)
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

// fieldsRead returns the fields of a gateway's records that are read while do runs.
func (r *rig) fieldsRead(gateway string, do func()) []string {
	read := map[string]bool{}
	for _, line := range testkit.Monitored(r.t, do) {
		if _, fields, is := strings.Cut(line, redisdb.NewKeys(gateway).JobPrefix()); is && hashRead.MatchString(line) {
			_, fields, _ = strings.Cut(fields, `"`) // the rest of the key
			for _, field := range strings.Fields(fields) {
				read[strings.Trim(field, `"`)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(read))
}

// For the same preview, the console and the command line read the same fields of the records.
func TestEveryPreviewReadsTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	page := r.console()
	for do, verb := range previewed {
		for _, filter := range []url.Values{{}, {"reason": {"refused"}}, {"batch": {"b1"}}, {"match": {"HTTP"}}, {"since": {"1h"}}} {
			console := r.fieldsRead(r.one, func() { r.fetch(clearAt(page, r.one, do, filter)) })
			command := r.fieldsRead(r.one, func() { r.run(previewArgs(verb, filter, r.one)...) })
			if len(console) < 5 || !slices.Equal(console, command) {
				t.Errorf("%s %v: the console reads %v, the command %v", do, filter, console, command)
			}
		}
	}
}

// The console refuses the same filters as the command line, with the same words.
func TestEveryPreviewRefusesTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	page := r.console()
	for _, filter := range []url.Values{{"reason": {"refusd"}}, {"reason": {"waiting for room"}}, {"since": {"soon"}}, {"until": {"25:00"}}, {"match": {"["}},
		{"since": {"1h"}, "until": {"2h"}}} {
		for do, verb := range previewed {
			answer, err := http.Get(clearAt(page, r.one, do, filter))
			r.must(err)
			body, err := io.ReadAll(answer.Body)
			r.must(err)
			answer.Body.Close()
			said := r.run(previewArgs(verb, filter, r.one)...)
			line, _, _ := strings.Cut(strings.TrimPrefix(said.err, "dispatcher: "), "\n")
			line, _, _ = strings.Cut(strings.ReplaceAll(line, "--", ""), " TIME") // the console has UTC, a terminal its own zone
			shown := html.UnescapeString(string(body))
			if said.code != 2 || answer.StatusCode != http.StatusBadRequest || line == "" || !strings.Contains(shown, line) {
				t.Errorf("%s %v: the command ends with %d and says %q, the console answers %d:\n%s", do, filter, said.code, line, answer.StatusCode, shown)
			}
		}
	}
}

// previewed are the actions on parked jobs, by their names in the console.
var previewed = map[string][]string{"replay": {"replay"}, "discard": {"discard", "--why", "w"}, "done": {"resolve", "--done", "--why", "w"},
	"not-done": {"resolve", "--not-done", "--why", "w"}}

var hashRead = regexp.MustCompile(`(?i) "h(m?get|getall)" `)

// console serves the pages of the rig's gateways.
func (r *rig) console() (address string) {
	page := httptest.NewServer(console.New(console.Config{Redis: r.c, Gateways: r.cfg.Gateways, Guard: httpapi.NewGuard("")}))
	r.t.Cleanup(page.Close)
	return page.URL
}

func clearAt(page, gateway, do string, filter url.Values) string {
	q := url.Values{"do": {do}}
	for k, v := range filter {
		q[k] = v
	}
	return page + "/gateways/" + gateway + "/clear?" + q.Encode()
}

func previewArgs(verb []string, filter url.Values, gateway string) []string {
	args := slices.Clone(verb)
	for flag, values := range filter {
		args = append(args, "--"+flag, values[0])
	}
	return append(args, "-g", gateway, "--dry-run", "-o", "json")
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
