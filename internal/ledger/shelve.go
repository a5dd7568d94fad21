package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

const (
	shelveChunk = 200
	papersChunk = 500
	shelveLook  = 100 * time.Millisecond // poll interval for jobs that come back
)

// shelving is one batch action in progress. If it is interrupted, a new one does the rest.
type shelving struct {
	b    *Books
	name string
	what string // cancel, pause, await, resume, release or approve, as shelve.lua names it
	text string // the error given to its jobs
	did  func(Shelved) error
}

// Shelved is the result of a step of a batch action: the totals of all jobs that it parked, and of those that
// an earlier call may have charged. The latter are parked as unknown_outcome, or are pending if look-ups are
// configured.
type Shelved struct {
	job.Totals
	Doubt job.Totals
}

// Add adds another step's result.
func (s *Shelved) Add(o Shelved) {
	s.Totals.Add(o.Totals)
	s.Doubt.Add(o.Doubt)
}

// ErrOvertaken ends a batch action when someone else has begun another one.
var ErrOvertaken = errors.New("another operator has paused, resumed or cancelled the batch meanwhile")

// mark records the new state of a batch: paused, cancelled, or neither if field is empty. Its jobs follow
// later. there is false if there is no such batch; then nothing was recorded. awaits says that the batch awaits
// approval.
func (b *Books) mark(ctx context.Context, name, field, who, why string) (there, awaits bool, err error) {
	n, err := record.Stop.Act(ctx, b.c, []string{b.keys.Batch(name), b.keys.Braked(), b.keys.Shelving()}, b.cfg.NowMicros.Now(), field, why, who, name).Int()
	return n > 0, n == 2, err
}

// CancelBatch parks all unsent jobs of a batch as cancelled, in file order: jobs that are queued, scheduled,
// waiting for a back-off or for room, and those parked by a pause. A job that an earlier call may have charged
// is parked as unknown_outcome, for an operator to look up, or becomes pending if look-ups are configured.
// Calls in flight finish. Jobs that come back from them within patience are parked now, later ones when they
// come back. Until the batch is resumed, newly accepted jobs are parked too, since the producer may still be
// running. Jobs that an operator replays are called. did is called with the result of each step; its error ends
// the action.
func (b *Books) CancelBatch(ctx context.Context, name, who, why string, patience time.Duration, did func(Shelved) error) error {
	if there, _, err := b.mark(ctx, name, "cancelled", who, why); err != nil || !there {
		return err
	}
	s := &shelving{b: b, name: name, what: "cancel", text: "its batch was cancelled: " + why, did: did}
	for until := time.Now().Add(patience); ; {
		if err := s.pass(ctx); err != nil {
			return err
		}
		if err := b.clearPapers(ctx); err != nil {
			return err
		}
		if more, err := s.comesBack(ctx, until); err != nil || !more {
			return err
		}
	}
}

// pausedText returns the error of jobs of a paused batch.
func pausedText(why string) string { return "its batch is paused: " + why }

// PauseBatch stops calls of a batch's jobs until it is resumed. Waiting jobs are parked as paused, in order.
// Jobs that are accepted or come back later are parked then.
func (b *Books) PauseBatch(ctx context.Context, name, who, why string, did func(Shelved) error) error {
	if there, _, err := b.mark(ctx, name, "paused", who, why); err != nil || !there {
		return err
	}
	s := &shelving{b: b, name: name, what: "pause", text: pausedText(why), did: did}
	if err := s.pass(ctx); err != nil {
		return err
	}
	return b.clearPapers(ctx)
}

// ResumeBatch ends a pause: the parked jobs wait for room at admission in file order, after all jobs that
// already wait. If it is interrupted, a dispatcher does the rest (Shelve). It also ends a cancel for jobs accepted
// from now on; those that the cancel parked stay parked. If the batch awaits approval, its jobs are parked for that.
func (b *Books) ResumeBatch(ctx context.Context, name string, did func(Shelved) error) error {
	there, awaits, err := b.mark(ctx, name, "", "", "")
	if err != nil || !there {
		return err
	}
	if awaits {
		return (&shelving{b: b, name: name, what: "await", did: did}).byItself(ctx)
	}
	s := &shelving{b: b, name: name, what: "resume", text: job.WasPaused, did: did}
	return s.pass(ctx)
}

// pass walks the batch once.
func (s *shelving) pass(ctx context.Context) error {
	k := s.b.keys
	keys := []string{k.BatchIDs(s.name), k.Counters(), k.Scheduled(), k.Retrying(), k.Parked(string(job.Rejected)), k.Parked(string(job.Cancelled)), k.Acts(),
		k.Parked(string(job.UnknownOutcome)), k.Parked(string(job.Paused)), k.Asking(), k.Parked(string(job.AwaitsApproval))}
	for from := int64(0); ; from += shelveChunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		reply, err := record.Shelve.For(s.b.cfg.Feed).Run(context.WithoutCancel(ctx), s.b.c, keys, s.b.cfg.NowMicros.Now(), s.name, s.what, s.text, k.JobPrefix(),
			from, shelveChunk, s.b.actPlace(), s.b.cfg.Asks.First(false)).StringSlice()
		if err != nil {
			return redisdb.Leaving(s.b.cfg.Gateway, err)
		}
		if len(reply) == 0 {
			return redisdb.BadReply("shelve.lua", reply)
		}
		seen, err := strconv.Atoi(reply[0])
		if err != nil {
			return redisdb.BadReply("shelve.lua", reply[0])
		}
		if seen < 0 {
			return ErrOvertaken
		}
		if changed := reply[1:]; len(changed) > 0 {
			if err := s.did(shelvedOf(changed)); err != nil {
				return err
			}
		}
		if seen < shelveChunk {
			return nil
		}
	}
}

// inDoubt is the prefix of shelve.lua for the money of a job that may have been charged.
const inDoubt = "?"

// shelvedOf adds up shelve.lua's list of changed jobs.
func shelvedOf(changed []string) Shelved {
	all, doubt := make([]string, len(changed)), []string(nil)
	for i, money := range changed {
		unsure := false
		if all[i], unsure = strings.CutPrefix(money, inDoubt); unsure {
			doubt = append(doubt, all[i])
		}
	}
	return Shelved{moneyOf(all), moneyOf(doubt)}
}

// moneyOf adds up the money of jobs, in the form stored in records.
func moneyOf(money []string) (t job.Totals) {
	for _, m := range money {
		t.AddMoney(m)
	}
	return t
}

// clearPapers removes stale tasks of jobs that have moved on from the queue, so that they are not pulled in
// place of others.
func (b *Books) clearPapers(ctx context.Context) error {
	lines, err := b.lines(ctx)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if err := b.clearLine(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

func (b *Books) clearLine(ctx context.Context, line string) error {
	for from := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := b.clearStretch(ctx, line, from, papersChunk)
		if err != nil {
			return err
		}
		from += n[0] - n[1]
		if n[0] < papersChunk {
			return nil
		}
	}
}

// clearStretch removes the stale tasks of a stretch of a line, counted from its tail. It returns how many tasks it looked at, and how
// many of them it removed.
func (b *Books) clearStretch(ctx context.Context, line string, from, count int64) (n [2]int64, err error) {
	k := b.keys
	reply, err := papersScript.Run(ctx, b.c, []string{line, k.Costs(), k.Nobodys()}, from, count, k.JobPrefix(), k.TaskPrefix()).Int64Slice()
	if err == nil && len(reply) != len(n) {
		err = redisdb.BadReply("papers.lua", reply)
	}
	if err == nil {
		n = [2]int64(reply)
	}
	return n, err
}

// comesBack waits until no job of the batch is in flight or the time has passed, and reports whether there are
// jobs to park.
func (s *shelving) comesBack(ctx context.Context, until time.Time) (bool, error) {
	for {
		batch, _, err := s.b.Batch(ctx, s.name)
		if err != nil {
			return false, fmt.Errorf("look what comes back: %w", err)
		}
		waiting := batch.Sum(func(p record.Place) bool {
			return p.State == job.Queued || p.State == job.Scheduled || p.State == job.Retrying || p.Reason == job.Rejected && p.State == job.Parked
		}).Jobs
		over := !time.Now().Before(until)
		if waiting > 0 {
			return !over, nil
		}
		if over || batch.Places[record.Place{State: job.InFlight}].Jobs == 0 {
			return false, nil
		}
		if err := clock.Wait(ctx, shelveLook); err != nil {
			return false, err
		}
	}
}

// canaryStays is how long the totals of a batch without jobs are kept after SendAhead. An enqueue may wait for
// room before its first job, and without the totals its whole file would be admitted.
const canaryStays = 30 * 24 * time.Hour

// SendAhead makes a future batch admit only its first jobs until they are done; the rest is parked as paused.
// It reports whether that holds: for a batch that already has jobs, it does only if SendAhead was called before
// the first of them.
func (b *Books) SendAhead(ctx context.Context, batch string, jobs int64) (bool, error) {
	return record.Ahead.Run(ctx, b.c, []string{b.keys.Batch(batch), b.keys.BatchIDs(batch)}, jobs, canaryStays.Milliseconds()).Bool()
}

// Resumes watches resumes that operators carry out, batch by batch, to find those that were broken off. A nil one
// finds none.
type Resumes map[string]resumeLeft

// resumeLeft is how many jobs a resume has still to admit, and how often that was seen.
type resumeLeft struct{ jobs, seen int64 }

// resumeStalls is how often Shelve sees a resume without progress before it takes it over. A dispatcher looks about
// once a second.
const resumeStalls = 10

// brokenOff reports whether the resume of a batch makes no progress any more.
func (r Resumes) brokenOff(ctx context.Context, b *Books, batch string) (bool, error) {
	if r == nil {
		return false, nil
	}
	now, _, err := b.Batch(ctx, batch)
	if err != nil {
		return false, err
	}
	left := resumeLeft{jobs: now.Places[record.Place{State: job.Parked, Reason: job.Paused}].Jobs, seen: 1}
	if was, is := r[batch]; is && was.jobs == left.jobs {
		left.seen += was.seen
	}
	r[batch] = left
	return left.seen >= resumeStalls, nil
}

// Shelve parks the jobs of batches that stopped themselves or await approval, and admits those of batches whose
// first jobs are done, that were approved, or whose resume was broken off. Any number of processes may run it at
// once; one finishes what another left. It calls did for each batch.
func (b *Books) Shelve(ctx context.Context, resumes Resumes, did func(batch, what string, jobs int64)) error {
	all, err := b.c.HGetAll(ctx, b.keys.Shelving()).Result()
	if err != nil {
		return err
	}
	maps.DeleteFunc(resumes, func(batch string, _ resumeLeft) bool { return all[batch] != "resume" })
	for _, batch := range slices.Sorted(maps.Keys(all)) {
		if all[batch] == "resume" {
			if broken, failed := resumes.brokenOff(ctx, b, batch); failed != nil || !broken {
				err = errors.Join(err, failed)
				continue
			}
		}
		var sum Shelved
		s := &shelving{b: b, name: batch, what: all[batch], text: job.WasPaused, did: func(step Shelved) error { sum.Add(step); return nil }}
		if failed := s.byItself(ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("batch %q: %w", batch, failed))
			continue
		}
		did(batch, s.what, sum.Jobs)
	}
	return err
}

// byItself does what a batch has requested. If someone has decided otherwise, shelve.lua has dropped the
// request, which is not an error.
func (s *shelving) byItself(ctx context.Context) error {
	stops := s.what == "pause" || s.what == "await"
	if stops {
		batch, _, err := s.b.Batch(ctx, s.name)
		if err != nil {
			return err
		}
		s.text = pausedText(batch.Why)
		if s.what == "await" {
			s.text = awaitsText(batch.Awaits.Why)
		}
	} else if s.what == "approve" {
		s.text = job.WasApproved
	}
	err := s.pass(ctx)
	if errors.Is(err, ErrOvertaken) {
		return nil
	}
	if err != nil || !stops {
		return err
	}
	if err := s.b.clearPapers(ctx); err != nil {
		return err
	}
	return s.b.c.HDel(ctx, s.b.keys.Shelving(), s.name).Err()
}

// Braked returns the names of the batches that stopped themselves and about which nobody has decided since, in
// the order in which they stopped.
func (b *Books) Braked(ctx context.Context) ([]string, error) {
	names, err := b.c.ZRange(ctx, b.keys.Braked(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read which batches of %s stopped themselves: %w", b.cfg.Gateway, err)
	}
	return names, nil
}
