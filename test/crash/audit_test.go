package crash

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/audit"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// books is all data that Redis has of a gateway.
type books struct {
	keys    []string
	records map[string]job.Record
	places  map[string][]string // the places of each job from which it could go on
}

// read reads the books while no process is at work.
func (r *run) read() books {
	b := books{records: map[string]job.Record{}, places: map[string][]string{}}
	for it := r.c.Scan(r.ctx, 0, "*{"+r.Gateway+"}*", 1000).Iterator(); it.Next(r.ctx); {
		if !slices.Contains(b.keys, it.Val()) {
			b.keys = append(b.keys, it.Val())
		}
	}
	for _, key := range b.keys {
		if id, ok := strings.CutPrefix(key, r.keys.JobPrefix()); ok {
			h, err := r.c.HGetAll(r.ctx, key).Result()
			r.must(err)
			b.records[id] = record.Parse(r.Gateway, id, record.Named(h))
		}
	}
	for name, set := range r.sets() {
		ids, err := r.c.ZRange(r.ctx, set, 0, -1).Result()
		r.must(err)
		b.find(name, ids)
	}
	lines, err := redisdb.Lines(r.ctx, r.c, r.keys)
	r.must(err)
	for _, list := range append(lines, r.keys.Active()) {
		tasks, err := r.c.LRange(r.ctx, list, 0, -1).Result()
		r.must(err)
		name := "queue"
		if list == r.keys.Active() {
			name = "in hand"
		}
		b.find(name, b.present(tasks))
	}
	aside, err := r.c.ZRange(r.ctx, r.keys.AsynqRetry(), 0, -1).Result()
	r.must(err)
	b.find("put aside", b.present(aside))
	return b
}

// sets returns the sorted sets that may hold a job.
func (r *run) sets() map[string]string {
	sets := map[string]string{"scheduled": r.keys.Scheduled(), "retrying": r.keys.Retrying(), "in_flight": r.keys.Open(), "pending": r.keys.Asking()}
	for _, reason := range job.Reasons() {
		sets["parked "+string(reason)] = r.keys.Parked(string(reason))
	}
	return sets
}

func (b *books) find(place string, ids []string) {
	for _, id := range ids {
		b.places[id] = append(b.places[id], place)
	}
}

// present returns the jobs that continue with one of these tasks: those that are queued in the same generation.
func (b *books) present(tasks []string) (ids []string) {
	for _, task := range tasks {
		id, generation, _ := job.ParseTaskID(task)
		if rec := b.records[id]; rec.State == job.Queued && rec.Generation == generation {
			ids = append(ids, id)
		}
	}
	return ids
}

// place returns the places one of which must hold a job, and no other place. After a crash it may be in asynq's retry set: asynq puts it there when
// its lease has expired or its handler has failed, and the next process takes it out.
func place(rec job.Record, crashed bool) []string {
	switch rec.State {
	case job.Queued:
		if crashed {
			return []string{"queue", "in hand", "put aside"}
		}
		return []string{"queue", "in hand"}
	case job.Parked:
		return []string{"parked " + string(rec.Reason)}
	case job.Done, job.Discarded:
		return nil
	}
	return []string{string(rec.State)}
}

// consistent checks that each job is in exactly one place, and that the counters are right.
func (r *run) consistent(when string, b books, crashed bool) {
	r.outcomes(when, b)
	counts := map[job.State]int64{}
	for id, rec := range b.records {
		counts[rec.State]++
		may, is := place(rec, crashed), b.places[id]
		if len(may) == 0 && len(is) == 0 || len(is) == 1 && slices.Contains(may, is[0]) {
			continue
		}
		r.fault("%s: job %s is %s %s (generation %d) and stands in %v", when, id, rec.State, rec.Reason, rec.Generation, is)
	}
	for id, places := range b.places {
		if _, known := b.records[id]; !known {
			r.fault("%s: job %s stands in %v and has no record", when, id, places)
		}
	}
	for field, want := range map[string]int64{"accepted": int64(len(b.records)), "done": counts[job.Done], "discarded": counts[job.Discarded]} {
		if n, _ := r.c.HGet(r.ctx, r.keys.Counters(), field).Int64(); n != want {
			r.fault("%s: the counter says %d %s, the records %d", when, n, field, want)
		}
	}
	if n := r.c.ZCard(r.ctx, r.keys.AsynqArchive()).Val(); n > 0 {
		r.fault("%s: %d tasks in asynq's archive", when, n)
	}
}

// audit makes the program check its own books. Right after a crash, jobs in asynq's retry set are no fault, and are missing from the totals.
func (r *run) audit(when string, crashed bool) {
	a, err := audit.New(r.c, r.Gateway, dispatch.Books(r.c, r.gateway())).Audit(r.ctx, audit.Params{Most: 10})
	r.must(err)
	aside := slices.ContainsFunc(a.Faults.List, func(f audit.Finding) bool { return f.What == audit.AsynqSet })
	for _, f := range a.Faults.List {
		if !crashed || f.What != audit.AsynqSet && (f.What != audit.Totals || !aside) {
			r.fault("%s, the audit found: %s %s", when, f.ID, f.Describe())
		}
	}
}

// verify checks the trail by its chain.
func (r *run) verify(when string) {
	v, err := deadletter.New(r.c, r.Gateway).Verify(r.ctx, deadletter.Head{})
	r.must(err)
	for _, f := range v.Findings {
		r.fault("%s, the trail: %s", when, f)
	}
}

// gateway returns the gateway of the run.
func (r *run) gateway() config.Gateway {
	cfg, err := r.config(r.Redis)
	r.must(err)
	return cfg.Gateways[0]
}

// midway checks the books right after the crash.
func (r *run) midway(hit bool) {
	const when = "right after the crash"
	b := r.read()
	if !r.flow.astray {
		r.consistent(when, b, hit)
		r.audit(when, hit)
	}
	r.verify(when)
	r.money(when, b)
	for id, outcome := range r.told {
		if _, known := b.records[id]; !known && (outcome == string(job.Enqueued) || outcome == string(job.ParkedNow)) {
			r.fault("lost: %s, which was reported as %s", id, outcome)
		}
	}
	for _, a := range acts {
		touched := slices.ContainsFunc(idsOf(r.Flow, a.words...), func(id string) bool { return b.records[id].State != job.Parked })
		if trail := r.c.LRange(r.ctx, r.keys.Trail(), 0, -1).Val(); touched && !strings.Contains(strings.Join(trail, ""), `"what":"`+a.what+`"`) {
			r.fault("%s: a %s has touched jobs and is not written down", when, a.what)
		}
	}
	if !hit && len(r.paper.owners)+len(r.paper.active)+len(r.paper.flight) > 0 {
		r.fault("a process that stopped in peace left attempts %v, tasks %v, leases %v", r.paper.owners, r.paper.active, r.paper.flight)
	}
}

// reckon checks everything at the end.
func (r *run) reckon() {
	const when = "at the end"
	b := r.read()
	r.consistent(when, b, false)
	r.audit(when, false)
	r.verify(when)
	r.money(when, b)
	for _, id := range r.flow.jobs {
		rec, known := b.records[id]
		if !known {
			r.fault("lost: %s", id)
			continue
		}
		r.job(id, rec)
		if r.flow.name == "forget" && (rec.Erased.IsZero() || rec.Reference != "") {
			r.fault("%s was not forgotten: %+v", id, rec)
		}
	}
	if len(b.records) != len(r.flow.jobs) {
		r.fault("%d records for %d jobs", len(b.records), len(r.flow.jobs))
	}
	for _, key := range b.keys {
		if r.left(key) {
			r.fault("left behind: %s", key)
		}
	}
	r.slots()
	if r.flow.name == "forget" && strings.Contains(fmt.Sprint(r.c.XRange(r.ctx, r.keys.Outcomes(), "-", "+").Val()), "ch_1") {
		r.fault("a reference is in the outcomes")
	}
}

// job compares the end of one job with what its gateway saw.
func (r *run) job(id string, rec job.Record) {
	var calls []arrival
	for _, c := range r.till.seen() {
		if c.id == id && !c.look {
			calls = append(calls, c)
		}
	}
	end := string(rec.State)
	if rec.State == job.Parked {
		end += " " + string(rec.Reason)
	}
	wrong := func(format string, args ...any) {
		r.fault("%s: %s; it is %s after %d attempts, history %v, its gateway saw %v", id, fmt.Sprintf(format, args...), end, rec.Attempts, rec.History, calls)
	}
	if may := r.flow.ends(id, r.flow.bereft || !survived(r.How)); !slices.Contains(may, end) {
		wrong("it should be %s", strings.Join(may, " or "))
	}
	charges := r.till.charged(id)
	switch {
	case wordOf(id) == paid, wordOf(id) == found:
		if len(calls) > 0 {
			wrong("called although it was charged, as a person or the gateway says")
		}
	case charges > 1:
		wrong("charged %d times", charges)
	case rec.State == job.Done && charges != 1:
		wrong("not charged")
	case charges > 0 && r.flow.stays && rec.Reason == job.Paused && rec.Unsure: // its call was cut off, and its batch stopped itself: resumed, it goes on with its key
	case charges > 0 && rec.State != job.Done && rec.Reason != job.UnknownOutcome:
		wrong("charged")
	}
	if r.flow.request == keyless && len(calls) > 1 && !r.flow.asks() {
		wrong("called again without a key")
	}
	if len(rec.History) < len(calls) {
		wrong("%d calls reached the gateway", len(calls))
	}
	for _, c := range calls {
		if want := r.flow.key(id); c.key != want {
			wrong("key %q, want %q", c.key, want)
		}
	}
}

// key returns the idempotency key that each call of a job must have.
func (f flow) key(id string) string {
	switch {
	case f.request == keyless:
		return ""
	case wordOf(id) == refused, wordOf(id) == unpaid && !f.asks():
		return job.IdempotencyKey(id, 2)
	}
	return id
}

// slots checks that every call had a slot: no window holds more calls than the limit, and there are at least as many permits as calls.
func (r *run) slots() {
	if n := r.till.most(window); n > perWindow {
		r.fault("%d calls within %s: %v", n, window, r.till.seen())
	}
	if n := r.c.ZCount(r.ctx, r.keys.Flight(), strconv.FormatInt(time.Now().UnixMicro(), 10), "+inf").Val(); n > 0 {
		r.fault("%d leases of calls that are over", n)
	}
	const longest = "n2"
	permits, _ := strconv.Atoi(r.c.HGet(r.ctx, r.keys.Pace(), longest).Val())
	if calls := len(r.till.seen()); permits < calls {
		r.fault("%d calls with %d slots", calls, permits)
	}
}

// left reports whether a key should be gone when everything is at an end.
func (r *run) left(key string) bool {
	if strings.HasPrefix(key, r.keys.TaskPrefix()) || strings.Contains(key, "}:flow:") || strings.Contains(key, "}:ready:") || key == r.keys.Throttled() {
		return true
	}
	return slices.Contains([]string{r.keys.Retold(), r.keys.Pending(), r.keys.Retries(), r.keys.Replays(), r.keys.Due(), r.keys.Active(), r.keys.Lease(), r.keys.Open(), r.keys.Costs(),
		r.keys.Asking(), r.keys.Scheduled(), r.keys.Retrying(), r.keys.AsynqRetry(), r.keys.AsynqScheduled(), r.keys.AsynqCompleted()}, key)
}

// clear deletes the data of the run from Redis.
func (r *run) clear() {
	r.must(r.c.Unlink(r.ctx, r.read().keys...).Err())
}
