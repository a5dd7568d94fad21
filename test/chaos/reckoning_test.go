package chaos

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// entry is what the books say about one job, and what its provider saw.
type entry struct {
	id, state, reason string
	attempts          string
	places            []string // the sets and lists in which it stands
	calls             []provider.CallLine
}

func (e entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s %s, %s attempts spent, in %v; the provider saw", e.id, e.state, e.reason, e.attempts, e.places)
	for _, c := range e.calls {
		fmt.Fprintf(&b, " %s %s→%d", time.UnixMicro(c.At).Format("04:05.000"), c.Key, c.Status)
	}
	return b.String()
}

// charges counts the charges of the calls. A provider with keys charges each key once; one without keys charges
// each call. Status 0 is a call that was charged and never answered, since no call is under way any more.
func (e entry) charges(keyless bool) int {
	n, keys := 0, map[string]bool{}
	for _, c := range e.calls {
		if (c.Status == http.StatusOK || c.Status == 0) && (keyless || !keys[c.Key]) {
			keys[c.Key] = true
			n++
		}
	}
	return n
}

// unsure counts the calls after which only the provider knows whether they were charged.
func (e entry) unsure() int {
	n := 0
	for _, c := range e.calls {
		if c.Status == http.StatusOK || c.Status == 0 || c.Status == http.StatusInternalServerError {
			n++
		}
	}
	return n
}

var generation = regexp.MustCompile(`~[0-9]+$`)

// seen returns what the provider saw, by job.
func (g *gateway) seen() map[string][]provider.CallLine {
	by := map[string][]provider.CallLine{}
	for _, c := range g.Calls() {
		if c.Look {
			continue
		}
		id := generation.ReplaceAllString(c.Key, "")
		by[id] = append(by[id], c)
	}
	return by
}

// entries reads the books of a gateway: the records of these jobs, and what stands in its sets.
func (w *world) entries(g *gateway, ids []string) ([]entry, error) {
	ctx, keys := context.Background(), redisdb.NewKeys(g.name)
	places, err := w.places(ctx, keys)
	if err != nil {
		return nil, err
	}
	list, seen := make([]entry, 0, len(ids)), g.seen()
	for chunk := range slices.Chunk(ids, 1000) {
		var records []*redis.SliceCmd
		_, err := w.db.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, id := range chunk {
				records = append(records, p.HMGet(ctx, keys.Job(id), "s", "r", "n"))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for i, id := range chunk {
			v := records[i].Val()
			list = append(list, entry{id: id, state: word(v[0]), reason: word(v[1]), attempts: word(v[2]), places: places[id], calls: seen[id]})
		}
	}
	return list, nil
}

func word(v any) string {
	s, _ := v.(string)
	return s
}

// places returns, for each job, the sets and lists that hold it. Asynq's list of active tasks does not count: a task may stay there
// for a while after its job's end if the answer to asynq's own "done" was lost.
func (w *world) places(ctx context.Context, keys redisdb.Keys) (map[string][]string, error) {
	by := map[string][]string{}
	sets := map[string]string{"scheduled": keys.Scheduled(), "retrying": keys.Retrying(), "open": keys.Open(), "pending": keys.Asking()}
	for _, r := range job.Reasons() {
		sets[string(r)] = keys.Parked(string(r))
	}
	for name, key := range sets {
		list, err := w.db.ZRange(ctx, key, 0, -1).Result()
		if err != nil {
			return nil, err
		}
		for _, id := range list {
			by[id] = append(by[id], name)
		}
	}
	lines, err := redisdb.Lines(ctx, w.db, keys)
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		tasks, err := w.db.LRange(ctx, line, 0, -1).Result()
		if err != nil {
			return nil, err
		}
		for _, task := range tasks {
			id := generation.ReplaceAllString(task, "")
			by[id] = append(by[id], "queue")
		}
	}
	return by, nil
}

// books checks that every job is in exactly one place, that it is at an end, and that charges and calls agree with the
// books. settled counts how often a person told the program that a job was not charged. asked says that the gateway may have said so.
func books(list []entry, keyless, asked bool, settled map[string]int) []string {
	var faults []string
	for _, e := range list {
		if why := e.wrong(keyless, asked, settled[e.id]); why != "" {
			faults = append(faults, why+": "+e.String())
		}
	}
	return faults
}

func (e entry) wrong(keyless, asked bool, settled int) string {
	charges := e.charges(keyless)
	switch {
	case e.state == "":
		return "lost"
	case e.state == "parked" && !slices.Equal(e.places, []string{e.reason}):
		return "not in the one place of its reason"
	case e.state != "parked" && len(e.places) > 0:
		return "at an end, and still somewhere"
	case charges > 1:
		return "charged more than once"
	case keyless && !asked && e.unsure() > 1+settled:
		return "called again after a call of unknown outcome, without a key"
	case e.state == "done" && charges != 1:
		return "done and not charged"
	case e.reason == "refused" && !slices.ContainsFunc(e.calls, func(c provider.CallLine) bool { return c.Status == http.StatusPaymentRequired }):
		return "parked as refused, and the provider did not refuse it"
	case (e.state == "discarded" || e.reason == "refused") && charges != 0:
		return "given up and charged"
	case e.state != "done" && e.state != "parked" && e.state != "discarded":
		return "not at an end"
	}
	return ""
}

// reckon checks all books when everything is at an end.
func (c *chaos) reckon() {
	c.audit()
	c.blame()
	for _, a := range c.accounts {
		list, err := c.entries(a.gateway, a.jobs)
		if err != nil {
			c.fault("%s: the books can't be read: %v", a.name, err)
			continue
		}
		for _, f := range books(list, a.keyless, a.asked, a.settled) {
			c.fault("%s: %s", a.name, f)
		}
		for _, e := range list {
			if !a.expected(e) {
				c.fault("%s: parked for a reason that no fault explains: %v", a.name, e)
			}
		}
		c.count(a, list)
		c.calls(a)
	}
}

// expected reports whether the faults explain why a job is parked. Only the provider refuses jobs. Only a gateway without keys has unknown
// outcomes, or one that repeats a saved 500; a gateway that is asked has none. Attempts are used up if there are keys, or if each answer was a definite one.
func (a *account) expected(e entry) bool {
	switch {
	case e.state != "parked", e.reason == "refused":
		return true
	case e.reason == "unknown_outcome":
		return !a.asked && (a.keyless || e.repeated())
	case e.reason == "cancelled": // a person meant to park it while it was pending, and the gateway had said meanwhile that nothing was charged: it was queued again
		return a.asked && e.charges(true) == 0
	case e.reason == "exhausted":
		if a.asked {
			return e.charges(true) == 0
		}
		return e.attempts == strconv.Itoa(attempts) && (!a.keyless || e.answered(http.StatusForbidden) > 0)
	}
	return false
}

// answered counts the calls with an answer of this status.
func (e entry) answered(status int) (n int) {
	for _, c := range e.calls {
		if c.Status == status {
			n++
		}
	}
	return n
}

// repeated reports whether the provider answered 500 twice to the same key.
func (e entry) repeated() bool {
	failed := map[string]int{}
	for _, c := range e.calls {
		if c.Status == http.StatusInternalServerError {
			failed[c.Key]++
		}
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(failed)), func(n int) bool { return n > 1 })
}

// count compares the program's own counts with the records.
func (c *chaos) count(a *account, list []entry) {
	states := map[string]int{}
	for _, e := range list {
		states[strings.TrimSpace(e.state+" "+e.reason)]++
	}
	records, ctx := 0, context.Background()
	keys := redisdb.NewKeys(a.name)
	for it := c.db.Scan(ctx, 0, keys.JobPrefix()+"*", 1000).Iterator(); it.Next(ctx); {
		records++
	}
	if records != len(a.jobs) {
		c.fault("%s: %d records for %d jobs", a.name, records, len(a.jobs))
	}
	s := c.status()[a.name]
	if s.Done != states["done"] || s.left() != 0 {
		c.fault("%s: status says %+v, the records %v", a.name, s, states)
	}
	for reason, n := range s.Parked {
		if states["parked "+reason] != n {
			c.fault("%s: status says %d parked as %s, the records %v", a.name, n, reason, states)
		}
	}
	a.states = states
	aside := func() int64 { // a lease of a call dies with who held it, when it has run out
		now := strconv.FormatInt(time.Now().UnixMicro(), 10)
		return c.db.ZCard(ctx, keys.AsynqArchive()).Val() + c.db.ZCard(ctx, keys.AsynqRetry()).Val() + c.db.ZCount(ctx, keys.Flight(), now, "+inf").Val()
	}
	if !testkit.Within(3*time.Minute, sec, func() bool { return c.db.LLen(ctx, keys.Active()).Val() == 0 && aside() == 0 }) {
		c.fault("%s: %d tasks that asynq takes for active 3 minutes after the last job's end, %d in its archive, its retry set, or among the leases of calls",
			a.name, c.db.LLen(ctx, keys.Active()).Val(), aside())
	}
}

// calls compares what the provider saw with the limits.
func (c *chaos) calls(a *account) {
	calls := a.Calls()
	a.most = map[time.Duration]int{}
	for _, l := range a.limits[0].limits {
		most, faults := crowded(calls, l.Window, reigns(a.limits, c.disturbed))
		a.most[l.Window] = most
		for _, f := range faults {
			c.fault("%s: %s", a.name, f)
		}
	}
	for _, call := range calls {
		if !a.explained(call) {
			c.fault("%s: an answer 429 while the provider kept to its contract: %+v at %v", a.name, call, time.UnixMicro(call.At))
		}
	}
	if n := a.Stats().ChargedTwice; n > 0 {
		c.fault("%s: %d jobs were charged twice", a.name, n)
	}
	a.together = together(a.line.Exchanges(), callTimeout+5*sec)
	if a.cap > 0 && a.together > a.cap {
		c.fault("%s: %d calls under way at once, the cap is %d", a.name, a.together, a.cap)
	}
}

// audit makes the program check its own books.
func (c *chaos) audit() {
	r, err := c.do("dispatcher", "audit", "--redis", c.redis.URL())
	c.note("audit: exit code %d %s", r.code, strings.TrimSpace(r.out))
	if err != nil || r.code != 0 {
		c.fault("dispatcher audit: exit code %d, %v\n%.3000s%.1000s", r.code, err, r.out, r.err)
	}
}

// blame looks for gateways that were held for the fault of one machine: a dispatcher without descriptors is no outage of its gateways.
func (c *chaos) blame() {
	for _, r := range c.runs {
		for line := range strings.Lines(r.text()) {
			if strings.Contains(line, "circuit open:") && strings.Contains(line, "too many open files") {
				c.fault("a dispatcher without descriptors opened the circuit for all: %s", line)
			}
		}
	}
}

// table returns what was done, and the results.
func (c *chaos) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "chaos for %v with seed %d, over after %v\n\n", c.length, c.seed, time.Since(c.begun).Round(sec))
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		fmt.Fprintf(&b, "  %4d × %s\n", c.counts[what], what)
	}
	for _, name := range c.names() {
		a := c.accounts[name]
		s := a.Stats()
		fmt.Fprintf(&b, "\n%s: %d jobs in %d files by %d runs of enqueue: %v\n", name, len(a.jobs), a.files, a.runs, a.states)
		if a.asked {
			fmt.Fprintf(&b, "  %d look-ups, %d found a charge\n", s.Lookups, s.LookupsFound)
		}
		fmt.Fprintf(&b, "  %d calls, %d charged, %d twice; answers: %d repeated, %d 409, %d 402, %d 403, %d 500, %d 503, %d 429, %d never\n",
			s.Calls, s.Charged, s.ChargedTwice, s.Replayed, s.Conflicts, s.Declined, s.Other, s.Failed, s.Down, s.TooMany, s.Hung)
		fated := 0
		for _, f := range s.Fates {
			fated += f.Jobs
		}
		fmt.Fprintf(&b, "  %d of the jobs always failed, or were barred for a while; %s\n", fated, a.lively)
		fmt.Fprintf(&b, "  limits %v, changed %d times; the most calls in a window: %v; %d under way at once\n",
			s.Limits, len(a.limits)-1, a.most, a.together)
	}
	fmt.Fprintf(&b, "\nfaults of the program: %d\n", len(c.faults))
	return b.String()
}
