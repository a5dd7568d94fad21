package ledger

import (
	"context"
	"fmt"
	"time"

	"spillway/internal/job"
)

// AuditParams say how to audit.
type AuditParams struct {
	// Most is how many findings of each kind, faults and notes, are kept; the rest is counted. Zero keeps none.
	Most int
	// Indexed is how many tasks of the queue are remembered at a time, in 8 bytes each; a longer queue takes several rounds. Zero means
	// 4,000,000.
	Indexed int64
	// Patience is how long what looks wrong at the end may take to be put right before it is judged again. Zero means 1 s; negative, no time.
	Patience time.Duration
	// Repair writes the books of batches anew that differ from the records of their jobs. Nothing else is changed.
	Repair bool
	// Progress hears now and then how many records have been looked at. Nil: nobody wants to know.
	Progress func(records int64)
}

// Audit is what an audit of one gateway's books has found.
type Audit struct {
	Standing          // at its end
	Records  int64    // looked at, those of finished jobs included as long as they are known
	Faults   Findings // what must not be
	Notes    Findings // what is remarkable, and in order
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
	b        *Books
	p        AuditParams
	a        Audit
	finished map[job.State]int64 // records of jobs that are done or discarded
	suspects []Finding
	known    map[Finding]bool // faults that are kept
}

// Audit checks that every job that was ever accepted is in exactly one place, and that the totals add up. Others may work on the
// gateway meanwhile: what looks wrong is judged again, job by job, before it counts as a fault.
func (b *Books) Audit(ctx context.Context, p AuditParams) (Audit, error) {
	a := &auditor{b: b, p: p, finished: map[job.State]int64{}, known: map[Finding]bool{}}
	s := &survey{b: b, indexed: p.Indexed, seen: a.seen, found: func(f Finding) error { return a.found(ctx, f) }}
	if err := s.run(ctx); err != nil {
		return a.a, err
	}
	if err := a.judgeLast(ctx); err != nil {
		return a.a, err
	}
	batches := &batchCheck{b: b, repair: p.Repair, found: a.fault}
	if err := batches.run(ctx); err != nil {
		return a.a, err
	}
	return a.a, a.sum(ctx, s)
}

func (a *auditor) seen(state job.State) {
	a.a.Records++
	if state == job.Done || state == job.Discarded {
		a.finished[state]++
	}
	if a.p.Progress != nil && a.a.Records%recordStep == 0 {
		a.p.Progress(a.a.Records)
	}
}

func (a *auditor) found(ctx context.Context, f Finding) error {
	if !f.Fault() {
		a.a.Notes.add(f, a.p.Most)
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
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-wait.C:
		return a.judge(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *auditor) judge(ctx context.Context) error {
	for _, f := range a.suspects {
		if a.known[f] {
			continue
		}
		still, err := a.b.still(ctx, f)
		if err != nil {
			return err
		}
		if still.What != "" {
			a.fault(still)
		}
	}
	a.suspects = a.suspects[:0]
	return nil
}

func (a *auditor) fault(f Finding) {
	if a.known[f] {
		return
	}
	a.a.Faults.add(f, a.p.Most)
	if len(a.known) < a.p.Most {
		a.known[f] = true
	}
}

// still judges one finding anew by one atomic look, and returns what is wrong now, if anything.
func (b *Books) still(ctx context.Context, f Finding) (Finding, error) {
	if f.What == NoRecord {
		here, err := b.stands(ctx, f)
		if err != nil || !here {
			return Finding{}, err
		}
		return f, nil
	}
	found, err := b.places(ctx, []string{f.ID}, true)
	if err != nil || len(found) == 0 {
		return Finding{}, err
	}
	return found[0].Finding, nil
}

// stands says whether something without a record still is what it was when it was found.
func (b *Books) stands(ctx context.Context, f Finding) (bool, error) {
	for _, set := range b.sets() {
		if set.name == f.Where {
			lost, err := b.ghosts(ctx, set.key, []string{f.ID})
			return len(lost) > 0, err
		}
	}
	n, err := b.c.Exists(ctx, b.keys.Job(f.ID)).Result()
	return n == 0, err
}

// sum holds the totals against each other, all of one moment.
func (a *auditor) sum(ctx context.Context, s *survey) (err error) {
	for range sumTries {
		if a.a.Standing, err = a.b.Look(ctx); err != nil {
			return err
		}
		missing := a.a.Missing()
		if missing == 0 || missing < 0 && -missing <= s.papers {
			return a.remembered(ctx, s)
		}
		if err = s.count(ctx); err != nil {
			return err
		}
	}
	a.fault(Finding{What: Totals, Text: fmt.Sprintf("accepted: %d, found: %d", a.a.Accepted, a.a.Accepted-a.a.Missing())})
	return a.remembered(ctx, s)
}

// remembered checks that no more jobs are known as finished than were counted: records expire, counters don't.
func (a *auditor) remembered(ctx context.Context, s *survey) error {
	for state, counted := range map[job.State]int64{job.Done: a.a.Done, job.Discarded: a.a.Discarded} {
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
