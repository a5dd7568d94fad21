package ledger

import (
	"context"
	"errors"
	"fmt"
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
	shelveLook  = 100 * time.Millisecond // between two looks at what comes back
)

// shelving is one act upon a batch under way. Stopped between two steps, it does the rest when it is begun anew.
type shelving struct {
	b    *Books
	name string
	what string // cancel, pause, await, resume, release or approve, as shelve.lua has it
	text string // the error that its jobs get
	did  func(Shelved) error
}

// Shelved is what a step of an act upon a batch did: the sums of all jobs that it parked, and of those among them of which an earlier call may have
// charged: they are parked as unknown_outcome, or pending where look-ups are configured.
type Shelved struct {
	job.Totals
	Doubt job.Totals
}

// Add adds another step's.
func (s *Shelved) Add(o Shelved) {
	s.Totals.Add(o.Totals)
	s.Doubt.Add(o.Doubt)
}

// ErrOvertaken is what an act upon a batch ends with when somebody has begun another one meanwhile.
var ErrOvertaken = errors.New("somebody else has paused, resumed or cancelled the batch meanwhile")

// mark writes down what holds for a batch from now on: paused or cancelled, or neither if the field is empty. The jobs follow.
// It says whether there is such a batch: where there is none, nothing was written, and nothing is to be done. awaits says that it waits for an approval.
func (b *Books) mark(ctx context.Context, name, field, who, why string) (there, awaits bool, err error) {
	n, err := record.Stop.Act(ctx, b.c, []string{b.keys.Batch(name), b.keys.Braked(), b.keys.Shelving()}, b.cfg.NowMicros.Now(), field, why, who, name).Int()
	return n > 0, n == 2, err
}

// CancelBatch parks all of a batch that isn't sent yet as cancelled, in the order of the file: jobs queued, scheduled, waiting out a back-off
// or for room, and those that a pause has parked. A job of them of which an earlier call may have charged is parked as unknown_outcome, for a
// person to look it up, or is pending where look-ups are configured. Calls under way finish; those of their jobs that come back within patience are
// parked now, and later ones when they come. So are jobs that are accepted from now on, until the batch is resumed: the producer may be
// at work still. What a person takes in again is called. did is told of each step what it parked; its error ends the act.
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

// pausedText is the error of the jobs of a paused batch.
func pausedText(why string) string { return "its batch is paused: " + why }

// PauseBatch lets nobody call a batch's jobs until it is resumed. Those that wait are parked as paused, in their order; those that come
// later, or come back, are parked when they come.
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

// ResumeBatch ends a pause: what it parked waits for room at admission, behind all that does already, in the order of the file. It ends a
// cancel too, for jobs that are accepted from now on: those that the cancel has parked stay. Those of a batch that awaits an approval are parked for that.
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

// pass goes through the batch once.
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

// inDoubt is what shelve.lua puts before the money of a job that may have been charged.
const inDoubt = "?"

// shelvedOf adds up what shelve.lua says of the jobs that it changed.
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

// moneyOf adds up the money of jobs, as records have it.
func moneyOf(money []string) (t job.Totals) {
	for _, m := range money {
		t.AddMoney(m)
	}
	return t
}

// clearPapers takes the tasks of jobs that have moved on out of the queue, so that nobody pulls them in place of others.
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
	k := b.keys
	for from := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := papersScript.Run(ctx, b.c, []string{line, k.Costs(), k.Nobodys()}, from, papersChunk, k.JobPrefix(), k.TaskPrefix()).Int64Slice()
		if err != nil {
			return err
		}
		if len(n) != 2 {
			return redisdb.BadReply("papers.lua", n)
		}
		from += n[0] - n[1]
		if n[0] < papersChunk {
			return nil
		}
	}
}

// comesBack waits until no job of the batch is in flight, or the time is over, and says whether there are jobs to be parked.
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
