package ledger

import (
	"context"
	"slices"
	"strconv"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// reflowChunk is how many parked jobs one script looks at.
const reflowChunk = 500

// HasFlows reports whether the room at admission is shared among flows: those of the gateway's lanes, of its
// routes with limits, and of its classes.
func (b *Books) HasFlows() bool { return b.sharing != "" }

// Turns are parked jobs whose turn it is to be admitted.
type Turns struct {
	Jobs []Rejected // without their places
	// Whole says that every job parked as rejected has a turn. If it is false, call Reflow.
	Whole bool
	// More says that there may be others, even if Jobs is empty.
	More bool
}

// NextRejected returns up to n jobs parked as rejected at a gateway with flows: those of the flows with the
// fewest queued jobs, and the oldest first within a flow. Jobs with damaged records are set aside.
func (b *Books) NextRejected(ctx context.Context, n int) (t Turns, err error) {
	k := b.keys
	reply, err := turnsScript.Run(ctx, b.c, []string{k.ParkedFlows(), k.Parked(string(job.Rejected)), k.Counters(), k.Pending(), k.Nobodys()},
		b.cfg.NowMicros.Now(), n, k.JobPrefix(), b.sharing).StringSlice()
	if err != nil {
		return t, err
	}
	if len(reply) < 2 || len(reply)%3 != 2 {
		return t, redisdb.BadReply("turns.lua", reply)
	}
	t.Whole, t.More = reply[0] == "1", reply[1] != "0"
	for i := 2; i+2 < len(reply); i += 3 {
		generation, err1 := strconv.ParseInt(reply[i+1], 10, 64)
		cost, err2 := strconv.ParseInt(reply[i+2], 10, 64)
		if err1 != nil || err2 != nil {
			return t, redisdb.BadReply("turns.lua", reply[i+1:i+3])
		}
		if generation < 0 {
			if _, err := b.setAside(ctx, record.Damage{ID: reply[i], From: []string{k.Parked(string(job.Rejected))}}); err != nil {
				return t, err
			}
			continue
		}
		t.Jobs = append(t.Jobs, Rejected{Return: job.Return{ID: reply[i], Generation: generation, Reason: job.Rejected, Key: job.KeepKey}, Cost: cost})
	}
	return t, nil
}

// SetUnfit takes jobs parked as rejected that cost more than admission can ever grant out of turn, so that they
// block no others.
func (b *Books) SetUnfit(ctx context.Context, jobs []Rejected) error {
	args := []any{b.keys.JobPrefix(), 0}
	for _, r := range jobs {
		args = append(args, r.Return.ID)
	}
	return unfitScript.Run(ctx, b.c, []string{b.keys.ParkedFlows(), b.keys.Nobodys()}, args...).Err()
}

// Refit gives the jobs taken aside by SetUnfit their turn again.
func (b *Books) Refit(ctx context.Context) error {
	for {
		n, err := unfitScript.Run(ctx, b.c, []string{b.keys.ParkedFlows(), b.keys.Nobodys()}, b.keys.JobPrefix(), reflowChunk).Int64()
		if err != nil || n < reflowChunk {
			return err
		}
	}
}

// Reflow gives a turn to jobs parked as rejected without one, by a process without flows. It starts after the
// place behind; 0 means all. It returns the last place, and whether all have a turn now.
func (b *Books) Reflow(ctx context.Context, behind int64) (last int64, whole bool, err error) {
	for last = behind; ; {
		n, err := b.reflow(ctx, "in", last, reflowChunk)
		if err != nil {
			return last, false, err
		}
		if last = n[1]; n[0] < reflowChunk {
			return last, n[3] == 0, nil
		}
	}
}

// Unflow removes the turns of jobs that are no longer parked as rejected because a version without flows
// admitted them, and recounts the others.
func (b *Books) Unflow(ctx context.Context) error {
	before, err := b.reflow(ctx, "out", "", reflowChunk, 0)
	if err != nil || before[3] == 0 {
		return err
	}
	flows, moved := []string{""}, int64(0)
	for cursor := uint64(0); ; {
		pairs, next, err := b.c.ZScan(ctx, b.keys.ParkedFlows(), cursor, "", reflowChunk).Result()
		if err != nil {
			return err
		}
		for i := 0; i < len(pairs); i += 2 {
			flows = append(flows, pairs[i])
		}
		for _, flow := range flows {
			for at := int64(0); ; {
				n, err := b.reflow(ctx, "out", flow, reflowChunk, at)
				if err != nil {
					return err
				}
				at, moved = at+n[0]-n[2], moved+n[2]
				if n[0] < reflowChunk {
					break
				}
			}
		}
		if flows, cursor = flows[:0], next; cursor == 0 {
			break
		}
	}
	if moved > 0 {
		return nil
	}
	_, err = b.reflow(ctx, "level", before[3], 0)
	return err
}

func (b *Books) reflow(ctx context.Context, what string, from any, more ...any) ([]int64, error) {
	k := b.keys
	args := append([]any{what, k.JobPrefix(), from}, more...)
	reply, err := reflowScript.Run(ctx, b.c, []string{k.Parked(string(job.Rejected)), k.Counters(), k.ParkedFlows(), k.Nobodys()}, args...).StringSlice()
	if err != nil {
		return nil, err
	}
	n := make([]int64, len(reply))
	for i, text := range reply {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || len(reply) != 4 {
			return nil, redisdb.BadReply("reflow.lua", reply)
		}
		n[i] = int64(f)
	}
	return n, nil
}

const (
	unlaneChunk = 500
	// laneUse is how long no job may have been assigned to a lane: another dispatcher may still have the
	// previous configuration, or already the next one.
	laneUse = 5 * time.Second
)

// LaneSets returns the keys of the sets of lanes with jobs, or nil if the gateway has neither lanes nor route
// limits.
func (b *Books) LaneSets() []string { return b.cfg.Lanes }

// unlane moves jobs from lanes back to the queue's own lines, for a gateway that no longer has lanes. It
// returns how many it moved, and whether others stay because another dispatcher calls jobs by lane.
func (b *Books) unlane(ctx context.Context) (moved int64, others bool, err error) {
	k := b.keys
	sets, err := redisdb.LaneSets(ctx, b.c, k)
	for _, set := range sets {
		for more := true; more && err == nil; {
			var n []int64
			n, err = unlaneScript.Run(ctx, b.c, []string{k.Lanes(), set, k.Due(), k.Pending(), k.Retries(), k.Replays(), k.Classes(), k.Nobodys()}, b.cfg.NowMicros.Now(), unlaneChunk, laneUse.Microseconds()).Int64Slice()
			if err == nil && len(n) != 3 {
				err = redisdb.BadReply("unlane.lua", n)
			}
			if err != nil {
				break
			}
			moved += n[0]
			more, others = n[0] > 0 && n[1] == 1, others || n[2] == 1
		}
	}
	return moved, others, err
}

// unclassChunk is how many jobs one script moves.
const unclassChunk = 500

// lines returns all lines of the queue: first the default ones, then those of classes, then those of lanes.
func (b *Books) lines(ctx context.Context) ([]string, error) {
	return redisdb.Lines(ctx, b.c, b.keys)
}

// Sorted is how many jobs were moved to other lines of the queue.
type Sorted struct {
	// Unclassed had a class that the gateway no longer has. They go behind the jobs of the default class.
	Unclassed int64
	// Unlaned were in lanes, and the gateway no longer has lanes.
	Unlaned int64
	// Others says that there are still jobs in lanes, because another dispatcher calls them.
	Others bool
}

// Sort moves queued jobs whose class or lanes the gateway no longer has to the lines where they belong. They
// keep their order.
func (b *Books) Sort(ctx context.Context) (s Sorted, err error) {
	classes, laned, err := redisdb.ClassesAndLanes(ctx, b.c, b.keys)
	if err == nil && laned && len(b.cfg.Lanes) == 0 { // first, because jobs leave lanes for the lines of their classes
		if s.Unlaned, s.Others, err = b.unlane(ctx); err == nil {
			classes, err = redisdb.ClassesOf(ctx, b.c, b.keys)
		}
	}
	if err != nil {
		return s, err
	}
	for _, class := range classes {
		line := b.keys.First(class)
		if slices.Contains(b.cfg.First, line) {
			continue
		}
		var moved int64
		for n := int64(unclassChunk); n == unclassChunk; moved += n {
			if n, err = unclassScript.Run(ctx, b.c, []string{line, b.keys.Pending(), b.keys.Classes()}, class, unclassChunk).Int64(); err != nil {
				return s, err
			}
		}
		s.Unclassed += moved
	}
	return s, nil
}
