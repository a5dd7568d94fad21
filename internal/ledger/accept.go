package ledger

import (
	"context"
	_ "embed" // the scripts are files
	"fmt"
	"slices"
	"strconv"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

//go:embed accept.lua
var acceptLua string

//go:embed readmit.lua
var readmitLua string

//go:embed receipt.lua
var receiptLua string

// receiptLifetime is how long the answer to an offer is kept: longer than anybody goes on asking for it.
const receiptLifetime = 10 * time.Minute

// answering makes a script that keeps its answer from the body of one that doesn't.
func answering(fragments []string, body string) *redisdb.Script {
	return redisdb.NewScript(append(fragments, "local function offered()", body, "end", receiptLua)...).Replicated()
}

// NoRetry stands for "never" where a time until there is room is given.
const NoRetry time.Duration = -1

// Accept takes a chunk of jobs through admission in one step, in order: each is enqueued, parked or refused, or is
// known already. mode is "park", "wait" or "fail". Keep chunks to a few hundred jobs: a script stalls everyone.
// With an error, none or all of the chunk was accepted: offered again with the same ticket, it gets the answer that was lost.
func (b *Books) Accept(ctx context.Context, ticket job.Ticket, jobs []job.Newcomer, mode string) (answers []job.Admittance, room job.Room, err error) {
	k := b.keys
	keys := make([]string, 0, 7+2*len(jobs))
	keys = append(keys, k.Admission(), k.Pending(), k.Parked(string(job.Rejected)), k.Counters(), k.Scheduled(), k.Costs())
	batch := batchOf(jobs)
	args := make([]any, 0, 32+12*len(jobs))
	args = append(args, b.now(), mode, flag(b.cfg.InOrder), b.cfg.Gateway, redisdb.Wake, batch)
	args = append(args, b.cfg.Bucket.Args()...)
	for _, n := range jobs {
		keys = append(keys, k.Job(n.Job.ID))
	}
	for _, n := range jobs {
		taskID, taskKey, msg, err := b.task(n.Job.ID, 1)
		if err != nil {
			return nil, room, err
		}
		keys = append(keys, taskKey)
		stored, err := b.cfg.Box.Seal(n.Job.ID, payload(n.Job))
		if err != nil {
			return nil, room, err
		}
		args = append(args, n.Job.ID, taskID, msg, b.cfg.Box.Digest(n.Job.ID, n.Digest), b.moneyOf(n), traits(n.Job, batch))
		args = appendPayload(args, stored)
	}
	keys = append(keys, k.Receipt(ticket.Lane))
	args = append(args, ticket.Number, receiptLifetime.Milliseconds())
	reply, err := b.accept.Run(ctx, b.c, keys, args...).Int64Slice()
	if err != nil {
		return nil, room, err
	}
	names := []job.Admittance{job.Enqueued, job.ParkedNow, job.Duplicate, job.Conflict, job.Full, job.KeyTaken}
	if room, reply, err = roomOf(reply); err != nil {
		return nil, room, err
	}
	answers, room.Retry, err = decode("accept.lua", reply, len(jobs), names)
	if err == nil {
		err = b.recognise(ctx, jobs, answers)
	}
	return answers, room, err
}

// batchOf is the batch that is said once for a chunk: most have but one.
func batchOf(jobs []job.Newcomer) string {
	if len(jobs) == 0 {
		return ""
	}
	return jobs[0].Job.Batch
}

// traits is what few jobs have, as accept.lua reads it.
func traits(j job.Job, batch string) string {
	if j.Cost <= 1 && j.At.IsZero() && j.Expires.IsZero() && j.Batch == batch {
		return ""
	}
	return fmt.Sprintf("%d %d %d %s", max(j.Cost, 1), micros(j.At), micros(j.Expires), j.Batch)
}

// How a payload is kept; payload_set in record.lua does the same.
const (
	pieceBytes = 64
	mostPieces = 8
)

// appendPayload appends the number of pieces that a payload is kept in, and the pieces; or 0 and the whole.
func appendPayload(args []any, payload []byte) []any {
	if len(payload) <= pieceBytes || len(payload) > pieceBytes*mostPieces {
		return append(args, 0, payload)
	}
	args = append(args, (len(payload)+pieceBytes-1)/pieceBytes)
	for piece := range slices.Chunk(payload, pieceBytes) {
		args = append(args, piece)
	}
	return args
}

func (b *Books) moneyOf(n job.Newcomer) string {
	if n.Money != "" {
		return n.Money
	}
	return b.money(n.Job.Payload)
}

// roomOf takes what is left out of the reply of accept.lua, behind the retry.
func roomOf(reply []int64) (job.Room, []int64, error) {
	if len(reply) < 3 || reply[2] < 0 || int64(len(reply)) < 3+reply[2] {
		return job.Room{}, nil, badReply("accept.lua", reply)
	}
	behind := 3 + reply[2]
	room := job.Room{Reset: time.Duration(reply[1]) * time.Microsecond, Left: slices.Clone(reply[3:behind])}
	return room, append(reply[:1:1], reply[behind:]...), nil
}

// For returns the books for one act: act names its place in the trail, and what Readmit takes, or an act upon a batch parks, is counted for it
// in the same step.
func (b *Books) For(act func() string) *Books {
	return &Books{c: b.c, cfg: b.cfg, keys: b.keys, accept: b.accept, readmit: b.readmit, act: act}
}

func (b *Books) actPlace() string {
	if b.act == nil {
		return ""
	}
	return b.act()
}

// Readmit takes parked jobs through admission again, in order; those that find no room stay parked (Full), those that
// are not parked like this any more are Gone. retry is when the first of them would find room: zero if it is not known, NoRetry if never.
func (b *Books) Readmit(ctx context.Context, jobs []job.Return) (answers []job.Admittance, retry time.Duration, err error) {
	k := b.keys
	keys := []string{k.Admission(), k.Pending(), k.Counters(), k.Scheduled(), k.Costs(), k.Acts()}
	args := append([]any{b.now(), b.cfg.Gateway, redisdb.Wake, b.actPlace()}, b.cfg.Bucket.Args()...)
	for _, r := range jobs {
		taskID, taskKey, msg, err := b.task(r.ID, r.Generation+1)
		if err != nil {
			return nil, 0, err
		}
		keys = append(keys, k.Job(r.ID), taskKey, k.Parked(string(r.Reason)))
		args = append(args, r.ID, strconv.FormatInt(r.Generation, 10), taskID, msg, string(r.Reason), string(r.Key))
	}
	reply, err := b.readmit.Run(ctx, b.c, keys, args...).Int64Slice()
	if err != nil {
		return nil, 0, err
	}
	return decode("readmit.lua", reply, len(jobs), []job.Admittance{job.Enqueued, job.Full, job.Gone})
}

func decode(script string, reply []int64, n int, names []job.Admittance) ([]job.Admittance, time.Duration, error) {
	if len(reply) != n+1 {
		return nil, 0, badReply(script, reply)
	}
	retry := time.Duration(reply[0]) * time.Microsecond
	if reply[0] < 0 {
		retry = NoRetry
	}
	answers := make([]job.Admittance, n)
	for i, code := range reply[1:] {
		if code < 1 || int(code) > len(names) {
			return nil, 0, badReply(script, reply)
		}
		answers[i] = names[code-1]
	}
	return answers, retry, nil
}

func payload(j job.Job) []byte {
	if len(j.Payload) == 0 {
		return []byte("{}")
	}
	return j.Payload
}
