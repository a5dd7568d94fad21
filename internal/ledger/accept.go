package ledger

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// receiptLifetime is how long the reply to an offer is stored: longer than any caller retries.
const receiptLifetime = 10 * time.Minute

// NoRetry means "never" where a time until there is room is given.
const NoRetry time.Duration = -1

// Accept admits a chunk of jobs in one step, in order: each is enqueued, parked, refused, or already known.
// mode is "park", "wait" or "fail". Keep chunks to a few hundred jobs, because the script blocks Redis. After
// an error, either none or all of the chunk was accepted: repeated with the same ticket, it gets the lost
// reply.
func (b *Books) Accept(ctx context.Context, ticket job.Ticket, jobs []job.Newcomer, mode string) ([]job.Admittance, job.Room, error) {
	offer, err := b.Offer(jobs)
	if err != nil {
		return nil, job.Room{}, err
	}
	return offer(ctx, ticket, mode)
}

// Offer does the part of Accept that needs no Redis, and returns the rest of it. jobs must not be changed.
func (b *Books) Offer(jobs []job.Newcomer) (job.Offer, error) {
	c, err := b.chunk(jobs)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, ticket job.Ticket, mode string) ([]job.Admittance, job.Room, error) {
		return b.put(ctx, c, ticket, mode)
	}, nil
}

// put offers a chunk to accept.lua.
func (b *Books) put(ctx context.Context, c *chunk, ticket job.Ticket, mode string) (answers []job.Admittance, room job.Room, err error) {
	check, err := b.bucketArgs(ctx)
	if err != nil {
		return nil, room, err
	}
	k := b.keys
	keys := []string{k.Admission(), k.Pending(), k.Parked(string(job.Rejected)), k.Counters(), k.Scheduled(), k.Costs()}
	if len(c.jobs) > 0 {
		keys = append(keys, k.Job(c.jobs[0].Job.ID))
	}
	if c.timed {
		keys = append(keys, k.Moments())
	}
	keys = append(keys, k.Receipt(ticket.Lane), k.Receipt(cmp.Or(ticket.Behind.Lane, ticket.Lane)))
	args := make([]any, 0, 64)
	args = append(args, b.cfg.NowMicros.Now(), mode+b.approvals(ctx), redisdb.Flag(b.cfg.InOrder)+b.passing, b.cfg.Gateway, redisdb.Wake, c.batch, len(c.jobs), k.JobPrefix(), k.TaskPrefix(), b.bound())
	args = append(args, c.forms...)
	args = append(args, check...)
	args = append(b.shared(append(args, c.text)), ticket.Number, receiptLifetime.Milliseconds(), ticket.Behind.Number, ticket.Until)
	reply, err := b.accept.Run(ctx, b.c, keys, args...).Text()
	if err != nil {
		return nil, room, redisdb.Leaving(b.cfg.Gateway, err)
	}
	reply, tooMany := strings.CutPrefix(reply, "!")
	reply, tooLong := strings.CutPrefix(reply, "#")
	if answers, room, err = answersOf(reply, len(c.jobs)); err == nil {
		if tooMany {
			room.Parked.Jobs = b.cfg.Parked.Jobs
		}
		if tooLong {
			room.Parked.Bytes = b.cfg.Parked.Bytes
		}
		err = b.recognise(ctx, c.jobs, answers)
	}
	return answers, room, err
}

// bound returns Parked in the form that accept.lua reads.
func (b *Books) bound() string {
	if !b.cfg.Parked.Bounds() {
		return ""
	}
	text := strconv.FormatInt(b.cfg.Parked.Jobs, 10) + " " + strconv.FormatInt(b.cfg.Parked.Bytes, 10)
	for _, r := range job.Reasons() {
		text += " " + string(r)
	}
	return text
}

func (b *Books) moneyOf(n job.Newcomer) string {
	if n.Money != "" {
		return n.Money
	}
	return b.cfg.Money(n.Job.Payload)
}

// admittances are the answers of accept.lua; digit n is the n-th, from 1.
var admittances = []job.Admittance{job.Enqueued, job.ParkedNow, job.Duplicate, job.Conflict, job.Full, job.KeyTaken, job.Damaged, job.Elsewhere}

// answersOf decodes the reply of accept.lua for n jobs.
func answersOf(reply string, n int) ([]job.Admittance, job.Room, error) {
	words := strings.Split(reply, " ")
	digits := words[len(words)-1]
	numbers := make([]int64, len(words)-1)
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return nil, job.Room{}, redisdb.BadReply("accept.lua", reply)
		}
	}
	if len(numbers) < 3 || numbers[2] != int64(len(numbers)-3) {
		return nil, job.Room{}, redisdb.BadReply("accept.lua", reply)
	}
	answers, err := coded("accept.lua", digits, n, admittances)
	return answers, job.Room{Retry: retryOf(numbers[0]), Reset: time.Duration(numbers[1]) * time.Microsecond, Left: numbers[3:]}, err
}

// coded decodes a script's answers for n jobs: a digit each, an index into all from 1.
func coded(script, digits string, n int, all []job.Admittance) ([]job.Admittance, error) {
	if len(digits) != n {
		return nil, redisdb.BadReply(script, digits)
	}
	answers := make([]job.Admittance, n)
	for i := range answers {
		code := int(digits[i]) - '1'
		if code < 0 || code >= len(all) {
			return nil, redisdb.BadReply(script, digits)
		}
		answers[i] = all[code]
	}
	return answers, nil
}

// retryOf converts a script's time until there is room.
func retryOf(us int64) time.Duration {
	if us < 0 {
		return NoRetry
	}
	return time.Duration(us) * time.Microsecond
}

// For returns a copy of the books for one action of an operator. act returns the action's entry in the audit
// trail; what Readmit admits, or a batch action parks, is counted for it in the same script.
func (b *Books) For(act func() string) *Books {
	return &Books{c: b.c, cfg: b.cfg, keys: b.keys, accept: b.accept, readmit: b.readmit, act: act, felt: b.felt, routeSent: b.routeSent, passing: b.passing, sharing: b.sharing}
}

// On returns a copy of the books that uses another client of the same Redis.
func (b *Books) On(c redis.UniversalClient) *Books {
	return &Books{c: c, cfg: b.cfg, keys: b.keys, accept: b.accept, readmit: b.readmit, act: b.act, felt: b.felt, routeSent: b.routeSent, passing: b.passing, sharing: b.sharing}
}

func (b *Books) actPlace() string {
	if b.act == nil {
		return ""
	}
	return b.act()
}

func payload(j job.Job) []byte {
	if len(j.Payload) == 0 {
		return []byte("{}")
	}
	return j.Payload
}
