package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway/internal/admission"
	"spillway/internal/clock"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// flow is a piece of work in which a process dies.
type flow struct {
	name string
	// request and settings are parts of the gateway's configuration.
	request, settings string
	// jobs are the ids. gateway_test.go and ends say what their first words mean.
	jobs []string
	// prepare sets the stage. Nil: the jobs are enqueued.
	prepare func(*run)
	// bereft says that prepare has killed a process already.
	bereft bool
	// act is what the doomed process does.
	act func(context.Context, *process) error
	// late says that act decides from when on commands count.
	late bool
	// astray says that jobs are not in their right places until the flow is over.
	astray bool
	// stays says that jobs may stay parked as paused, because their batch stops itself.
	stays bool
	// again is what a person does once more after the crash. Nil: nothing.
	again func(context.Context, *process) error
}

// leak allows four calls in 500 ms: the window, and a jitter allowance of 100 ms. Many runs share the machine, and a process that
// gets no processor just before its write sends late. With a shorter window its report of that could come too late.
const (
	window    = 400 * time.Millisecond
	perWindow = 4
	leak      = "leak: {limits: [4/400ms, 1000/h], jitter: 100ms}\nretry: {attempts: 6, first: 10ms, max: 20ms}\n"
	roomy     = "admission: {limits: [1000/s], burst: 1000}\n"
	narrow    = "admission: {limits: [40/s], burst: 4}\n"
	keyless   = `, idempotency_header: ""`
	inLanes   = "lanes: {key: payload.kind, limits: [3/400ms]}\npriority: {classes: [high, usual], default: usual}\n"
	heldLanes = "answers: [{status: 429, then: hold, scope: lane}]\nlanes: {key: payload.kind, max_in_flight: 1}\n"
	asked     = `answers: {rules: [{status: 202, then: accepted}]}
lookup: {url: "/{name}/look/{id}", schedule: [100ms, 200ms, 200ms, 300ms, 500ms, 1s, 1s, 2s, 2s, 2s], matches: {job: "{id}"}, answers: [{body: {status: paid}, then: done, reference: id}, {body: {status: declined}, then: refused}, {status: 404, then: not_done, after: 300ms}]}
`
)

// More words that ids begin with.
const (
	stale   = "stale"   // its time to expire has passed
	later   = "later"   // scheduled
	dear    = "dear"    // costs 2
	refused = "refused" // parked: the gateway said no to its first key
	spent   = "spent"   // parked: its attempts are used up
	waits   = "waits"   // parked: admission had no room for it
	paid    = "paid"    // parked: outcome unknown, and it was charged
	unpaid  = "unpaid"  // parked: outcome unknown, and it was not
	dropped = "dropped" // parked as refused, to be discarded
	found   = "found"   // parked: outcome unknown, it was charged, and the gateway is asked
	missing = "missing" // parked: outcome unknown, it was not charged, and the gateway is asked
)

func flows() []flow {
	return append(slices.Concat(batchFlows(), laneFlows(), brakeFlows()), []flow{
		{
			name: "enqueue", settings: leak + narrow,
			jobs:    []string{"ok-1", "ok-2", "ok-3", "later-1", "ok-4", "dear-1", "ok-5", "ok-6", "ok-7"},
			prepare: func(*run) {}, act: enqueueChunks, again: enqueueChunks,
		},
		{
			name: "enqueue, waiting for room", settings: leak + "admission: {limits: [100/s], burst: 2}\nreplay: manual\n",
			jobs:    []string{"ok-1", "ok-2", "ok-3", "ok-4", "ok-5", "ok-6", "ok-7"},
			prepare: func(*run) {}, act: enqueueWaiting, again: enqueueWaiting,
		},
		{
			name: "enqueue, in lanes", settings: leak + narrow + inLanes,
			jobs:    []string{"ok-1", "ok-2", "ok-3", "later-1", "ok-4", "dear-1", "ok-5", "ok-6", "ok-7"},
			prepare: func(*run) {}, act: enqueueChunks, again: enqueueChunks,
		},
		{
			name: "dispatch, parked before there were lanes", settings: leak + narrow + inLanes, prepare: withoutTurns, act: dispatchAll,
			jobs: []string{"ok-1", "ok-2", "ok-3", "ok-4", "fails-1", "dear-1", "fails-2", "ok-5"},
		},
		{
			name: "dispatch", settings: leak + narrow, act: dispatchAll,
			jobs: []string{"ok-1", "fails-1", "refuses-1", "stale-1", "later-1", "dear-1", "cut-1"},
		},
		{
			name: "dispatch, expired jobs in front", settings: leak + roomy, act: dispatchAll,
			jobs: []string{"stale-1", "stale-2", "stale-3", "stale-4", "stale-5", "stale-6", "stale-7", "stale-8", "ok-1", "stale-9"},
		},
		{
			name: "dispatch, held", settings: leak + roomy, act: dispatchAll,
			jobs: []string{"holds-1", "ok-1", "ok-2"},
		},
		{
			name: "dispatch, without keys", request: keyless, settings: leak + roomy, act: dispatchAll,
			jobs: []string{"cut-1", "ok-1", "fails-1", "refuses-1", "ok-2"},
		},
		{
			name: "recover", settings: leak + roomy, prepare: victim, bereft: true, act: dispatchAll,
			jobs: []string{"hangs-1", "hangs-2", "ok-1", "ok-2"},
		},
		{
			name: "recover, without keys", request: keyless, settings: leak + roomy, prepare: victim, bereft: true, act: dispatchAll,
			jobs: []string{"hangs-1", "hangs-2", "ok-1"},
		},
		{
			name: "ask", request: keyless, settings: leak + roomy + asked, act: dispatchAll,
			jobs: []string{"cut-1", "drops-1", "taken-1", "denied-1", "hides-1", "fails-1", "balks-1", "refuses-1", "ok-1"},
		},
		{
			name: "ask, with keys", settings: leak + roomy + asked, act: dispatchAll,
			jobs: []string{"taken-1", "denied-1", "cut-1", "refuses-1"},
		},
		{
			name: "recover and ask", request: keyless, settings: leak + roomy + asked, prepare: victim, bereft: true, act: dispatchAll,
			jobs: []string{"hangs-1", "hangs-2", "ok-1"},
		},
		{
			name: "dispatch, in lanes", settings: leak + narrow + inLanes, act: dispatchAll,
			jobs: []string{"ok-1", "fails-1", "ok-2", "refuses-1", "ok-3", "dear-1", "cut-1", "ok-4"},
		},
		{
			name: "dispatch, one lane held", settings: leak + narrow + heldLanes, act: dispatchAll,
			jobs: []string{"holds-1", "ok-1", "holds-2", "ok-2", "slow-1", "ok-3"},
		},
		{
			name: "recover, with places of lanes", settings: leak + roomy + strings.Replace(heldLanes, "max_in_flight: 1", "max_in_flight: 2", 1), prepare: victim, bereft: true, act: dispatchAll,
			jobs: []string{"hangs-1", "hangs-2", "ok-1", "ok-2"},
		},
		{
			name: "recover, in lanes", settings: leak + roomy + inLanes, prepare: victim, bereft: true, act: dispatchAll,
			jobs: []string{"hangs-1", "hangs-2", "ok-1", "ok-2"},
		},
		{
			name: "shut down, in lanes", settings: strings.Replace(leak, "}", ", max_in_flight: 3}", 1) + roomy + inLanes, act: shutDown, late: true,
			jobs: []string{"slow-1", "slow-2", "slow-3", "slow-4", "ok-1", "ok-2"},
		},
		{
			name: "set what lanes may have", settings: leak + roomy + inLanes, act: setLanesWorking, late: true, again: setLanes,
			jobs: []string{"ok-1", "ok-2", "fails-1", "ok-3", "ok-4", "ok-5"},
		},
		{
			name: "clear dead letters", settings: leak + "admission: {limits: [50/s], burst: 10}\nreplay: manual\n", prepare: deadLetters, act: clearAll, again: clearAll,
			jobs: []string{"refused-1", "spent-1", "paid-1", "unpaid-1", "dropped-1", "refused-2", "spent-2", "paid-2", "unpaid-2", "dropped-2", "waits-1", "waits-2"},
		},
		{
			name: "have dead letters asked about", request: keyless, settings: leak + roomy + asked, prepare: deadLetters, act: askAll, again: clearAll,
			jobs: []string{"found-1", "missing-1", "found-2", "missing-2"},
		},
		{
			name: "have dead letters asked about, with keys", settings: leak + roomy + asked, prepare: deadLetters, act: askAll, again: clearAll,
			jobs: []string{"missing-1", "found-1", "missing-2"},
		},
		{
			name: "forget", settings: leak + roomy + "replay: manual\n", prepare: cleared, act: forgetAll, again: forgetAll,
			jobs: []string{"paid-1", "dropped-1", "paid-2", "dropped-2"},
		},
		{name: "write the trail", settings: leak + roomy, act: writeTrail, again: writeTrail, jobs: []string{"ok-1"}},
		{
			name: "shut down", settings: strings.Replace(leak, "}", ", max_in_flight: 3}", 1) + roomy, act: shutDown, late: true,
			jobs: []string{"slow-1", "slow-2", "slow-3", "slow-4", "slow-5", "fails-1"},
		},
	}...)
}

func flowOf(name string) flow {
	all := flows()
	return all[slices.IndexFunc(all, func(f flow) bool { return f.name == name })]
}

// ends returns the states in which a job may end, followed by the reason of parking. Without keys, the outcome of a call is
// unknown if its process was killed; a process that lives records it, however long that takes.
func (f flow) ends(id string, killed bool) []string {
	const done, unknown = "done", "parked unknown_outcome"
	keys := f.request != keyless
	if f.stays && wordOf(id) != refuses {
		return []string{done, "parked paused"}
	}
	switch wordOf(id) {
	case denied:
		return []string{"parked refused"}
	case stale:
		return []string{"parked expired"}
	case dropped:
		return []string{"discarded"}
	case refuses:
		if keys || !killed {
			return []string{"parked refused"}
		}
		if f.asks() {
			return []string{"parked refused", done} // the gateway has no charge of a lost refusal, and the next call is not the first one
		}
		return []string{"parked refused", unknown}
	case fails, cut, hangs:
		if !keys && !f.asks() {
			return []string{unknown}
		}
	}
	if keys || !killed || f.asks() {
		return []string{done}
	}
	return []string{done, unknown}
}

// asks reports whether the gateway is asked about jobs in doubt.
func (f flow) asks() bool { return strings.Contains(f.settings, "lookup:") }

// jobs makes jobs of ids.
func (s spec) make(ids ...string) []job.Job {
	base := time.UnixMicro(s.Base)
	jobs := make([]job.Job, len(ids))
	for i, id := range ids {
		jobs[i] = job.Job{ID: id, Gateway: s.Gateway, Payload: fmt.Appendf(nil, `{"for":%q,"kind":%q,"amount":100,"currency":"EUR"}`, id, wordOf(id)), Cost: 1, Batch: "crash"}
		switch wordOf(id) {
		case stale:
			jobs[i].Expires = base.Add(-time.Minute)
		case later:
			jobs[i].At = base.Add(400 * time.Millisecond)
		case dear:
			jobs[i].Cost = 2
		}
	}
	return jobs
}

// enqueueChunks has duplicates in a chunk and over chunks, and an id with another payload.
func enqueueChunks(ctx context.Context, p *process) error {
	all := flowOf(p.Flow).jobs
	chunks := [][]job.Job{
		p.make(all[0], all[1], all[0]),
		p.make(all[2:6]...),
		p.make(append([]string{all[1], all[5]}, all[6:]...)...),
		p.make(all[0], all[8]),
	}
	chunks[3][0].Payload = []byte(`{"for":"somebody else"}`)
	for _, some := range chunks {
		if err := p.admit(ctx, some, admission.Park); err != nil {
			return err
		}
	}
	return nil
}

func enqueueWaiting(ctx context.Context, p *process) error {
	return p.admit(ctx, p.make(flowOf(p.Flow).jobs...), admission.Wait)
}

func dispatchAll(ctx context.Context, p *process) error { return p.dispatch(ctx) }

// shutDown stops while calls are under way.
func shutDown(ctx context.Context, p *process) error {
	d, err := p.serve(ctx)
	if err != nil {
		return err
	}
	for range ticks(ctx) {
		if n := p.direct.ZCard(ctx, redisdb.NewKeys(p.Gateway).Open()).Val(); n >= 2 {
			break
		}
		if _, left, err := p.sizes(ctx); err == nil && left == 0 {
			return errors.Join(errors.New("no two calls were under way at once"), stop(d))
		}
	}
	p.arm()
	return stop(d)
}

// setLanesWorking does what setLanes does, while jobs are called.
func setLanesWorking(ctx context.Context, p *process) error {
	d, err := p.serve(ctx)
	if err != nil {
		return err
	}
	p.arm()
	return errors.Join(setLanes(ctx, p), stop(d))
}

// setLanes pauses a lane, changes its limits and its weight, and lets it go on.
func setLanes(ctx context.Context, p *process) error {
	yes, no, weight := true, false, int64(5)
	for _, to := range []dispatch.LaneChange{
		{Paused: &yes},
		{Limits: &[]job.Limit{{N: 2, Window: window}}, Weight: &weight},
		{Paused: &no},
		{Limits: &[]job.Limit{}},
	} {
		if err := insist(func() error { return dispatch.SetLane(ctx, p.db.Client, p.gateway(), "ok", to) }); err != nil {
			return err
		}
	}
	return nil
}

// victim is a process that is killed while calls of it hang.
func victim(r *run) {
	r.enqueue()
	s := r.spec
	s.How = ""
	cmd, _ := r.spawn(s)
	r.await("calls that hang", func() bool {
		n := 0
		for _, c := range r.till.seen() {
			if wordOf(c.id) == hangs {
				n++
			}
		}
		return n >= 2
	})
	r.must(cmd.Process.Kill())
	_ = cmd.Wait()
	r.snapshot()
	r.age()
}

// withoutTurns enqueues more jobs than there is room for, and deletes the turns of the parked ones. A dispatcher then finds jobs as if they had been parked before the gateway had lanes.
func withoutTurns(r *run) {
	r.enqueueIn(admission.Park)
	parked := r.c.ZCard(r.ctx, r.keys.Parked(string(job.Rejected))).Val()
	if flowed, _ := r.c.HGet(r.ctx, r.keys.Counters(), "flowed").Int64(); parked == 0 || flowed != parked {
		r.fault("%d jobs are parked, %d of them with turns", parked, flowed)
	}
	parts, err := r.c.Keys(r.ctx, r.keys.Parked(string(job.Rejected))+":f:*").Result()
	r.must(err)
	r.must(r.c.Del(r.ctx, append(parts, r.keys.ParkedFlows())...).Err())
	r.must(r.c.HDel(r.ctx, r.keys.Counters(), "flowed").Err())
}

// deadLetters parks the jobs as if they had been called.
func deadLetters(r *run) {
	r.enqueueIn(admission.Park)
	for _, id := range r.flow.jobs {
		end := job.Ending{Called: true, Spent: true, At: time.Now(), Verdict: job.VerdictRefused, Status: 402}
		switch wordOf(id) {
		case refused, dropped:
			r.park(id, end, job.Refused)
		case spent:
			end.Status, end.Verdict, end.Unsure = 500, job.VerdictRetry, true
			r.park(id, end, job.Exhausted)
		case paid, unpaid, found, missing:
			end.Status, end.Verdict, end.Unsure = 0, job.VerdictUnknown, true
			r.park(id, end, job.UnknownOutcome)
			if wordOf(id) == found {
				r.till.found(id)
			}
		}
	}
}

// clearAll clears all dead letters, each kind in its own way.
func clearAll(ctx context.Context, p *process) error {
	g := p.gateway()
	books, store := dispatch.Books(p.db.Client, g), dispatch.Store(p.db.Client, g)
	rules, err := dispatch.Rules(ctx, p.db.Client, g)
	if err != nil {
		return err
	}
	do := map[string]func(deadletter.BulkRun) (deadletter.BulkResult, error){
		"replay":             func(c deadletter.BulkRun) (deadletter.BulkResult, error) { return c.Replay(ctx, books, rules) },
		"resolve --done":     func(c deadletter.BulkRun) (deadletter.BulkResult, error) { return c.Done(ctx, rules, g.Dedupe, "ch_1") },
		"resolve --not-done": func(c deadletter.BulkRun) (deadletter.BulkResult, error) { return c.NotDone(ctx, books, rules) },
		"resolve --ask":      func(c deadletter.BulkRun) (deadletter.BulkResult, error) { return c.Ask(ctx, rules, books.AskAgain) },
		"discard":            func(c deadletter.BulkRun) (deadletter.BulkResult, error) { return c.Discard(ctx, rules, g.Dedupe) },
	}
	for _, a := range acts {
		ids := idsOf(p.Flow, a.words...)
		if len(ids) == 0 {
			continue
		}
		entry := store.Entry(deadletter.Act{At: rules.Now, Who: "test", What: a.what, Why: "crash"})
		done, err := do[a.what](deadletter.BulkRun{Store: store, Filter: deadletter.Filter{IDs: ids},
			Clock: clock.Real{}, Begin: entry.Begin})
		if err := errors.Join(err, entry.End(ctx, deadletter.Deed{Totals: job.Totals{Jobs: int64(done.Taken)}})); err != nil {
			return err
		}
	}
	return nil
}

// acts are what people do to dead letters, and to which of them.
var acts = []struct {
	what  string
	words []string
}{
	{"replay", []string{refused, spent, waits}},
	{"resolve --done", []string{paid}},
	{"resolve --not-done", []string{unpaid}},
	{"resolve --ask", []string{found, missing}},
	{"discard", []string{dropped}},
}

// askAll has the gateway asked about the dead letters, and asks it.
func askAll(ctx context.Context, p *process) error {
	if err := clearAll(ctx, p); err != nil {
		return err
	}
	return p.dispatch(ctx)
}

func idsOf(flow string, words ...string) (ids []string) {
	for _, id := range flowOf(flow).jobs {
		if slices.Contains(words, wordOf(id)) {
			ids = append(ids, id)
		}
	}
	return ids
}
