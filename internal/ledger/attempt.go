package ledger

import (
	"context"
	_ "embed" // the scripts are files
	"strconv"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

//go:embed open.lua
var openLua string

//go:embed done.lua
var doneLua string

//go:embed back.lua
var backLua string

var (
	openScript = redisdb.NewScript(redisdb.NowLua, redisdb.RecordLua, redisdb.OutageLua, redisdb.AliveLua, openLua).Replicated()
	doneScript = redisdb.NewScript(redisdb.NowLua, redisdb.RecordLua, redisdb.OutageLua, doneLua).Replicated()
	backScript = redisdb.NewScript(redisdb.NowLua, redisdb.RecordLua, redisdb.OutageLua, backLua).Replicated()
)

// Open writes an attempt down before its call. deadline is how long from now nobody may judge the attempt: the wait
// for the slot, the call's time-out and a margin. With OpenHeld nothing was written and the task must come again, with OpenStale and
// OpenBusy nothing was written and there is nothing to do; with any other opening the job is the owner's to call, or to park as the opening says.
// The same owner may open the same attempt again, for a later deadline.
func (b *Books) Open(ctx context.Context, id string, generation int64, owner string, deadline time.Duration) (job.Attempt, job.Opening, error) {
	keys := []string{b.keys.Job(id), b.keys.Open(), b.keys.Costs(), b.keys.Counters(), b.keys.Hold(), b.keys.Alive()}
	age := b.age()
	reply, err := openScript.Run(ctx, b.c, keys, b.now(), id, generation, owner, deadline.Microseconds(),
		flag(b.cfg.Keys), b.cfg.KeyLifetime.Microseconds(), b.cfg.Attempts, age.Version, age.Least, age.Marks).StringSlice()
	if err != nil {
		return job.Attempt{}, "", err
	}
	if len(reply) == 1 {
		return job.Attempt{}, job.Opening(reply[0]), nil
	}
	if len(reply) != 10 {
		return job.Attempt{}, "", badReply("open.lua", reply)
	}
	var n [6]int64
	for i, at := range []int{2, 4, 5, 6, 7, 8} {
		if n[i], err = strconv.ParseInt(reply[at], 10, 64); err != nil {
			return job.Attempt{}, "", badReply("open.lua", reply[at])
		}
	}
	a := job.Attempt{
		Job:        job.Job{ID: id, Gateway: b.cfg.Gateway, Payload: []byte(reply[1]), Cost: n[0], Batch: reply[3]},
		Generation: generation, Owner: owner, Spent: int(n[1]), KeyGeneration: n[2], Accepted: moment(n[4]),
		Outages: int(n[5]), LastError: reply[9],
	}
	if n[3] >= 0 {
		a.KeySent, a.KeyAge = true, time.Duration(n[3])*time.Microsecond
	}
	opening := b.unseal(&a, job.Opening(reply[0]))
	return a, opening, nil
}

// Done writes down that the attempt's call succeeded. Writing it twice is the same as once.
func (b *Books) Done(ctx context.Context, a job.Attempt, e job.Ending) error {
	keys := append([]string{b.keys.Job(a.Job.ID), b.keys.Open(), b.keys.Rate(), b.keys.Counters(),
		b.keys.Retrying(), b.keys.Scheduled(), b.keys.Hold()}, b.parkedKeys()...)
	return doneScript.Run(ctx, b.c, keys, b.now(), a.Job.ID, a.Generation, a.Owner, e.Status, e.Line(),
		b.cfg.Dedupe.Milliseconds(), micros(a.Accepted), e.Reference).Err()
}

// Back writes down that the attempt ended without an end of the job. wait zero puts the job back at the head of the
// queue at once, more makes it wait out that back-off. Nothing happens if the record has moved on.
func (b *Books) Back(ctx context.Context, a job.Attempt, e job.Ending, wait time.Duration) error {
	taskID, taskKey, msg, err := b.task(a.Job.ID, a.Generation+1)
	if err != nil {
		return err
	}
	k := b.keys
	keys := []string{k.Job(a.Job.ID), k.Open(), k.Rate(), k.Pending(), taskKey, k.Retrying(), k.Costs(), k.Counters(), k.Hold()}
	return backScript.Run(ctx, b.c, keys, b.now(), a.Job.ID, a.Generation, a.Owner, flag(e.Spent), e.Line(), e.Status,
		wait.Microseconds(), e.Error, taskID, msg, b.cfg.Gateway, redisdb.Wake, flag(e.Unsure), flag(e.Alive()), micros(e.Failed), micros(e.Outage)).Err()
}
