// Package audit checks that every job of a gateway is where its record says, that all totals agree with the records, and puts right what does not: writes behind
// our back, evictions and lost writes do that.
package audit

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/clock"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Books are the records of one gateway's jobs, as the ledger keeps them.
type Books interface {
	// Look returns the gateway's totals, all of one moment.
	Look(ctx context.Context) (record.Standing, error)
	// BatchJobs yields the jobs of a batch, without a state those whose records are gone.
	BatchJobs(ctx context.Context, name string) iter.Seq2[job.Record, error]
	// Task returns the id, the key and the message of a job's task for one generation. Only mending needs it.
	Task(id string, generation int64) (taskID, key string, msg []byte, err error)
	// LaneSets are the keys of the sets in which lanes with jobs stand; none where the gateway has no lanes.
	LaneSets() []string
}

// Gateway is one gateway whose books are checked and mended. Safe for concurrent use.
type Gateway struct {
	c     redis.UniversalClient
	name  string
	keys  redisdb.Keys
	books Books
	// NowMicros replaces Redis's clock. For tests; nil means Redis's own.
	NowMicros redisdb.Clock
}

// New returns the gateway of that name, with its books.
func New(c redis.UniversalClient, gateway string, books Books) *Gateway {
	return &Gateway{c: c, name: gateway, keys: redisdb.NewKeys(gateway), books: books}
}

// Params say how to audit.
type Params struct {
	// Most is how many findings of each kind, faults and notes, are kept; the rest is counted. Zero keeps none.
	Most int
	// Indexed is how many tasks of the queue are remembered at a time, in 8 bytes each; a longer queue takes several rounds. Zero means
	// 4,000,000.
	Indexed int64
	// Lanes is how many lanes are counted in one script; more are counted a few at a time, which is of no use while jobs come and go. Zero means 5,000.
	Lanes int
	// Patience is how long what looks wrong at the end may take to be put right before it is judged again. Zero means 1 s; negative, no time.
	Patience time.Duration
	// Repair writes the books of batches anew that differ from the records of their jobs, and what brakes count, and puts lanes, and jobs that wait for room, where their turn is. Nothing else
	// is changed.
	Repair bool
	// Progress hears now and then how many records have been looked at. Nil: nobody wants to know.
	Progress func(records int64)
}

// Report is what an audit of one gateway's books has found.
type Report struct {
	record.Standing          // at its end
	Records         int64    // looked at, those of finished jobs included as long as they are known
	Faults          Findings // what must not be
	Notes           Findings // what is remarkable, and in order
}

// Findings are those that were kept, and how many there were.
type Findings struct {
	Total int64
	List  []Finding
}

func (f *Findings) add(one Finding, most int) {
	f.Total++
	if len(f.List) < most {
		f.List = append(f.List, one)
	}
}

const (
	mostSuspects = 1000 // judged at once; more are judged before the survey goes on
	secondLook   = time.Second
	// sumTries is how often the totals are looked at before they are found wrong, as tasks of jobs that have moved on come and go.
	sumTries = 3
)

// auditor is one audit under way.
type auditor struct {
	g        *Gateway
	p        Params
	report   Report
	finished map[job.State]int64 // records of jobs that are done or discarded
	suspects []Finding
	known    map[Finding]bool // faults that are kept
	lost     bool             // a lane does not stand where it is to, so nobody can count what stands in it
}

// Audit checks that every job that was ever accepted is in exactly one place, and that the totals add up. Others may work on the
// gateway meanwhile: what looks wrong is judged again, job by job, before it counts as a fault.
func (g *Gateway) Audit(ctx context.Context, p Params) (Report, error) {
	a := &auditor{g: g, p: p, finished: map[job.State]int64{}, known: map[Finding]bool{}}
	if p.Repair {
		if _, err := g.relist(ctx, true); err != nil { // else each job of these lanes is looked for
			return a.report, fmt.Errorf("check the lanes of %s: %w", g.name, err)
		}
	}
	s := &survey{g: g, indexed: p.Indexed, seen: a.seen, found: func(f Finding) error { return a.found(ctx, f) }}
	if err := s.run(ctx); err != nil {
		return a.report, err
	}
	if err := a.judgeLast(ctx); err != nil {
		return a.report, err
	}
	batches := &batchCheck{g: g, repair: p.Repair, found: a.fault}
	if err := batches.run(ctx); err != nil {
		return a.report, err
	}
	lanes := &laneCheck{g: g, repair: p.Repair, most: p.Lanes, found: a.fault, lost: func() bool { return a.lost }}
	if err := lanes.run(ctx); err != nil {
		return a.report, err
	}
	brakes := &brakeCheck{g: g, repair: p.Repair, found: a.fault}
	if err := brakes.run(ctx); err != nil {
		return a.report, err
	}
	if err := a.told(ctx); err != nil {
		return a.report, err
	}
	return a.report, a.sum(ctx, s)
}

func (a *auditor) seen(state job.State) {
	a.report.Records++
	if state == job.Done || state == job.Discarded {
		a.finished[state]++
	}
	if a.p.Progress != nil && a.report.Records%recordStep == 0 {
		a.p.Progress(a.report.Records)
	}
}

func (a *auditor) found(ctx context.Context, f Finding) error {
	if !f.Fault() {
		a.report.Notes.add(f, a.p.Most)
		return nil
	}
	a.suspects = append(a.suspects, f)
	if len(a.suspects) < mostSuspects {
		return nil
	}
	return a.judge(ctx)
}

func (a *auditor) judgeLast(ctx context.Context) error {
	if len(a.suspects) == 0 {
		return nil
	}
	patience := a.p.Patience
	if patience == 0 {
		patience = secondLook
	}
	if err := clock.Wait(ctx, patience); err != nil {
		return err
	}
	return a.judge(ctx)
}

func (a *auditor) judge(ctx context.Context) error {
	for _, f := range a.suspects {
		if a.known[f] {
			continue
		}
		still, err := a.g.still(ctx, f)
		if err != nil {
			return err
		}
		if a.p.Repair {
			if did, err := a.g.mendPlace(ctx, still); err != nil {
				return err
			} else if did {
				if still, err = a.g.still(ctx, f); err != nil {
					return err
				}
			}
		}
		if still.What != "" {
			a.fault(still)
		}
	}
	a.suspects = a.suspects[:0]
	return nil
}

func (a *auditor) fault(f Finding) {
	if !f.Fault() {
		a.report.Notes.add(f, a.p.Most)
		return
	}
	a.lost = a.lost || f.What == NoLane || f.What == LaneSets
	if a.known[f] {
		return
	}
	a.report.Faults.add(f, a.p.Most)
	if len(a.known) < a.p.Most {
		a.known[f] = true
	}
}

// still judges one finding anew by one atomic look, and returns what is wrong now, if anything.
func (g *Gateway) still(ctx context.Context, f Finding) (Finding, error) {
	if f.What == NoRecord {
		here, err := g.stands(ctx, f)
		if err != nil || !here {
			return Finding{}, err
		}
		return f, nil
	}
	found, err := g.places(ctx, []string{f.ID}, true)
	if err != nil || len(found) == 0 {
		return Finding{}, err
	}
	return found[0].Finding, nil
}

// stands says whether something without a record still is what it was when it was found.
func (g *Gateway) stands(ctx context.Context, f Finding) (bool, error) {
	for _, set := range g.sets() {
		if set.name == f.Where {
			lost, err := g.ghosts(ctx, set.key, []string{f.ID})
			return len(lost) > 0, err
		}
	}
	n, err := g.c.Exists(ctx, g.keys.Job(f.ID)).Result()
	return n == 0, err
}

// sum holds the totals against each other, all of one moment.
func (a *auditor) sum(ctx context.Context, s *survey) (err error) {
	for range sumTries {
		if a.report.Standing, err = a.g.books.Look(ctx); err != nil {
			return err
		}
		missing := a.report.Missing()
		if missing == 0 || missing < 0 && -missing <= s.papers {
			return a.remembered(ctx, s)
		}
		if err = s.count(ctx); err != nil {
			return err
		}
	}
	a.fault(Finding{What: Totals, Text: fmt.Sprintf("accepted: %d, found: %d", a.report.Accepted, a.report.Accepted-a.report.Missing())})
	return a.remembered(ctx, s)
}

// remembered checks that no more jobs are known as finished than were counted: records expire, counters don't.
func (a *auditor) remembered(ctx context.Context, s *survey) error {
	for state, counted := range map[job.State]int64{job.Done: a.report.Done, job.Discarded: a.report.Discarded} {
		if a.finished[state] <= counted {
			continue
		}
		found, err := s.distinct(ctx, state) // the first scan may have seen some of them twice
		if err != nil {
			return err
		}
		if found > counted {
			a.fault(Finding{What: Totals, Text: fmt.Sprintf("%d records say %s, the counter says %d", found, state, counted)})
		}
	}
	return nil
}
