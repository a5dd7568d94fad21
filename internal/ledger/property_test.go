package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/testkit"
)

// TestEveryJobIsInExactlyOnePlace does random things in random order, with workers that die and stall, and compares
// the books with a plain model: each accepted job is in the one place that its record names, and no job is done twice.
func TestEveryJobIsInExactlyOnePlace(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		b := setup(t, 5, func(c *ledger.Config) {
			c.Gateway, c.Money, c.Brake = fmt.Sprintf("%s-%d", c.Gateway, round), eurosOrMore, easyBrake
		})
		m := newWalk(b, fmt.Sprintf("%s-%d", b.name, round))
		rt.Repeat(map[string]func(*rapid.T){
			"accept":   m.accept,
			"time":     func(rt *rapid.T) { b.now += rapid.Int64Range(1, 90e6).Draw(rt, "µs") },
			"pull":     m.pull,
			"open":     m.openOne,
			"end":      m.endOne,
			"move due": func(*rapid.T) { _, _, err := b.books.MoveDue(b.ctx); b.must(err) },
			"sweep":    func(*rapid.T) { _, err := b.books.Sweep(b.ctx); b.must(err) },
			"readmit":  m.readmit,
			"discard":  m.discard,
			"withdraw": m.withdraw,
			"cancel":   func(*rapid.T) { b.must(b.books.CancelBatch(b.ctx, "a:b", "me", "mistake", 0, noted)) },
			"pause":    func(*rapid.T) { b.must(b.books.PauseBatch(b.ctx, "c", "me", "wait", noted)) },
			"resume": func(rt *rapid.T) {
				b.must(b.books.ResumeBatch(b.ctx, rapid.SampledFrom([]string{"a:b", "c"}).Draw(rt, "batch"), noted))
			},
			"ahead": func(rt *rapid.T) {
				_, err := b.books.SendAhead(b.ctx, rapid.SampledFrom([]string{"a:b", "c"}).Draw(rt, "batch"), 2)
				b.must(err)
			},
			"shelve": func(*rapid.T) { b.must(b.books.Shelve(b.ctx, nil, func(string, string, int64) {})) },
			"":       m.audit,
		})
	})
}

// easyBrake stops a batch soon.
var easyBrake = job.Brake{Calls: 2, Refused: 50}

type pulled struct {
	id         string
	generation int64
}

type walk struct {
	*bench
	store    *deadletter.Store
	accepted map[string]bool
	inHand   []pulled
	open     []job.Attempt
	owners   int
}

func newWalk(b *bench, gateway string) *walk {
	b.name = gateway
	b.keys = keysOf(gateway)
	w := &walk{bench: b, store: deadletter.New(b.c, gateway), accepted: map[string]bool{}}
	w.store.NowMicros, w.store.Brake = func() int64 { return b.now }, easyBrake
	return w
}

func (w *walk) accept(rt *rapid.T) {
	mode := rapid.SampledFrom([]string{"park", "wait", "fail"}).Draw(rt, "mode")
	var jobs []job.Job
	plain := rapid.Bool().Draw(rt, "plain")
	for range rapid.IntRange(1, 4).Draw(rt, "jobs") {
		j := job.Job{ID: fmt.Sprintf("j%d", rapid.IntRange(1, 12).Draw(rt, "id")), Cost: rapid.Int64Range(1, 3).Draw(rt, "cost"),
			Batch: rapid.SampledFrom([]string{"", "a:b", "c"}).Draw(rt, "batch"), Payload: rapid.SampledFrom(payloads).Draw(rt, "payload")}
		if plain {
			j.Cost, j.Batch = 1, "c"
		} else if rapid.Bool().Draw(rt, "scheduled") {
			j.At = time.UnixMicro(w.now + 20e6)
		}
		jobs = append(jobs, j)
	}
	for i, a := range w.bench.accept(mode, jobs...) {
		if a == job.Enqueued || a == job.ParkedNow {
			w.accepted[jobs[i].ID] = true
		}
	}
}

func (w *walk) pull(*rapid.T) {
	if len(w.waiting()) == 0 {
		return
	}
	id, generation := w.bench.pull()
	w.inHand = append(w.inHand, pulled{id, generation})
}

func (w *walk) openOne(rt *rapid.T) {
	if len(w.inHand) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.inHand)-1).Draw(rt, "which")
	p := w.inHand[i]
	w.inHand = append(w.inHand[:i], w.inHand[i+1:]...)
	if rapid.IntRange(0, 4).Draw(rt, "dies before") == 0 {
		w.c.ZRem(w.ctx, w.keys.Lease(), job.TaskID(p.id, p.generation))
		return
	}
	w.owners++
	a, opening := w.bench.open(p.id, p.generation, fmt.Sprint(w.owners))
	switch opening {
	case job.OpenGo:
		w.open = append(w.open, a)
	case job.OpenUnknown, job.OpenExhausted:
		w.must(w.store.Park(w.ctx, a, job.Ending{}, job.UnknownOutcome))
		w.finish(p.id, p.generation)
	case job.OpenPaused, job.OpenCancelled:
		w.must(w.store.Park(w.ctx, a, job.Ending{Error: a.LastError}, job.Reason(opening)))
		w.finish(p.id, p.generation)
	default:
		w.finish(p.id, p.generation)
	}
}

func (w *walk) endOne(rt *rapid.T) {
	if len(w.open) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.open)-1).Draw(rt, "which")
	a := w.open[i]
	w.open = append(w.open[:i], w.open[i+1:]...)
	e := job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, At: time.UnixMicro(w.now)}
	switch rapid.SampledFrom([]string{"done", "dies", "head", "retry", "park"}).Draw(rt, "end") {
	case "done":
		w.must(w.books.Done(w.ctx, a, e))
		w.must(w.books.Done(w.ctx, a, e))
	case "dies":
		return
	case "head":
		w.must(w.books.Back(w.ctx, a, job.Ending{}, 0))
	case "retry":
		w.must(w.books.Back(w.ctx, a, e, 10*time.Second))
	case "park":
		w.must(w.store.Park(w.ctx, a, e, job.Refused))
		w.must(w.store.Park(w.ctx, a, e, job.Refused))
	}
	w.finish(a.Job.ID, a.Generation)
}

func (w *walk) parked(rt *rapid.T) []job.Return {
	var jobs []job.Return
	for r, err := range w.store.List(w.ctx, deadletter.Filter{Limit: rapid.IntRange(1, 3).Draw(rt, "limit")}) {
		w.must(err)
		jobs = append(jobs, job.Return{ID: r.Job.ID, Generation: r.Generation, Reason: r.Reason, Key: job.NextKey})
	}
	return jobs
}

func (w *walk) readmit(rt *rapid.T) {
	if jobs := w.parked(rt); len(jobs) > 0 {
		_, _, err := w.books.Readmit(w.ctx, jobs)
		w.must(err)
	}
}

func (w *walk) discard(rt *rapid.T) {
	if jobs := w.parked(rt); len(jobs) > 0 {
		_, err := w.store.Discard(w.ctx, jobs, time.Hour)
		w.must(err)
	}
}

// withdraw parks or discards a waiting job by hand.
func (w *walk) withdraw(rt *rapid.T) {
	id := fmt.Sprintf("j%d", rapid.IntRange(1, 12).Draw(rt, "id"))
	r := record.Parse(w.name, id, record.Named(w.c.HGetAll(w.ctx, w.keys.Job(id)).Val()))
	which, err := []job.Return{{ID: id, Generation: r.Generation}}, error(nil)
	if rapid.Bool().Draw(rt, "for good") {
		_, err = w.books.WithdrawForGood(w.ctx, which, ledger.Discarding{Why: "discarded by me: w", Dedupe: time.Hour, MayBeCharged: rapid.Bool().Draw(rt, "may be charged")})
	} else {
		_, err = w.books.Withdraw(w.ctx, which, "parked by me: w")
	}
	w.must(err)
}

// audit counts the places from which each job could go on.
func (w *walk) audit(rt *rapid.T) {
	places := map[string][]string{}
	find := func(place string, ids []string) {
		for _, id := range ids {
			places[id] = append(places[id], place)
		}
	}
	current := func(tasks []string) (ids []string) {
		for _, task := range tasks {
			id, generation, _ := job.ParseTaskID(task)
			r := w.record(id)
			if r.Generation == generation && (r.State == job.Queued || r.State == job.InFlight) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	find("queue", current(w.waiting()))
	for _, id := range current(w.c.LRange(w.ctx, w.keys.Active(), 0, -1).Val()) {
		if w.c.HGet(w.ctx, w.keys.Job(id), "s").Val() == "queued" {
			find("in hand", []string{id})
		}
	}
	find("open", w.c.ZRange(w.ctx, w.keys.Open(), 0, -1).Val())
	find("scheduled", w.c.ZRange(w.ctx, w.keys.Scheduled(), 0, -1).Val())
	find("retrying", w.c.ZRange(w.ctx, w.keys.Retrying(), 0, -1).Val())
	for _, r := range job.Reasons() {
		find("parked", w.c.ZRange(w.ctx, w.keys.Parked(string(r)), 0, -1).Val())
	}
	done := int64(0)
	for id := range w.accepted {
		w.holds(rt, id, places[id], &done)
	}
	s, err := w.books.Look(w.ctx)
	w.must(err)
	if s.Done != done || s.Accepted != int64(len(w.accepted)) {
		rt.Fatalf("counted %d done and %d accepted, the records say %d and %d", s.Done, s.Accepted, done, len(w.accepted))
	}
	w.recount(rt)
}

func (w *walk) holds(rt *rapid.T, id string, places []string, done *int64) {
	state := job.State(w.c.HGet(w.ctx, w.keys.Job(id), "s").Val())
	expect := map[job.State]string{job.Scheduled: "scheduled", job.InFlight: "open", job.Retrying: "retrying", job.Parked: "parked"}
	switch state {
	case job.Done, job.Discarded:
		if state == job.Done {
			*done++
		}
		if len(places) != 0 {
			rt.Fatalf("job %s is %s and yet in %v", id, state, places)
		}
	case job.Queued:
		if len(places) != 1 || (places[0] != "queue" && places[0] != "in hand") {
			rt.Fatalf("job %s is queued and in %v", id, places)
		}
	default:
		if len(places) != 1 || places[0] != expect[state] {
			rt.Fatalf("job %s is %q and in %v", id, state, places)
		}
	}
}
