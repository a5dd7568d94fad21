package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
)

// Batch returns the totals of a batch. ok is false if the gateway knows no such batch, or knows it no longer.
// The cost does not depend on the number of jobs.
func (b *Books) Batch(ctx context.Context, name string) (batch record.Batch, ok bool, err error) {
	h, err := b.c.HGetAll(ctx, b.keys.Batch(name)).Result()
	if err != nil || len(h) == 0 {
		return record.Batch{}, false, err
	}
	batch, err = record.ParseBatch(h)
	if err != nil {
		return record.Batch{}, false, fmt.Errorf("the books of batch %q at %s: %w", name, b.cfg.Gateway, err)
	}
	return batch, true, nil
}

// ParkedMoney returns the money of all parked jobs by reason, with and without a batch, and how many have no
// readable amount; Jobs stays zero. It is empty if the gateway's jobs have no money.
func (b *Books) ParkedMoney(ctx context.Context) (map[job.Reason]job.Totals, error) {
	h, err := b.c.HGetAll(ctx, b.keys.Money()).Result()
	if err != nil {
		return nil, err
	}
	batch, err := record.ParseBatch(h)
	if err != nil {
		return nil, fmt.Errorf("the sums of what is parked at %s: %w", b.cfg.Gateway, err)
	}
	sums := make(map[job.Reason]job.Totals, len(batch.Places))
	for p, s := range batch.Places {
		sums[p.Reason] = s
	}
	return sums, nil
}

// LastDue returns the latest time for which a job waits in one of these states: Scheduled, Retrying or Pending
// (its next look-up). It is zero if none waits.
func (b *Books) LastDue(ctx context.Context, states ...job.State) (last time.Time, err error) {
	sets := map[job.State]string{job.Scheduled: b.keys.Scheduled(), job.Retrying: b.keys.Retrying(), job.Pending: b.keys.Asking()}
	for _, state := range states {
		set := sets[state]
		found, err := b.c.ZRevRangeWithScores(ctx, set, 0, 0).Result()
		if err != nil {
			return last, err
		}
		for _, z := range found {
			if at := record.Moment(int64(z.Score)); at.After(last) {
				last = at
			}
		}
	}
	return last, nil
}

// batchPage is how many jobs of a batch are read at once.
const batchPage = 500

// namesPage is how many ids of a batch are read at once: Redis goes through the list from its nearer end to where they stand, each time.
const namesPage = 10_000

// Retrying returns up to most jobs that wait for a back-off, without payloads, those due last first. more says
// that there are others.
func (b *Books) Retrying(ctx context.Context, most int64) (found []job.Record, more bool, err error) {
	ids, err := b.c.ZRevRange(ctx, b.keys.Retrying(), 0, most).Result()
	if err != nil {
		return nil, false, fmt.Errorf("read which jobs of %s wait out a back-off: %w", b.cfg.Gateway, err)
	}
	if more = int64(len(ids)) > most; more {
		ids = ids[:most]
	}
	for r, err := range b.Records(ctx, ids, false) {
		if err != nil {
			return nil, false, err
		}
		found = append(found, r)
	}
	return found, more, nil
}

// BatchJobs yields the jobs of a batch in the order of acceptance, without payloads. A job whose record is gone
// has no state. It reads page by page; jobs accepted meanwhile come last.
func (b *Books) BatchJobs(ctx context.Context, name string) iter.Seq2[job.Record, error] {
	return b.BatchRecords(ctx, name, false)
}

// BatchRecords is BatchJobs. If payloads is set, payloads are read and opened.
func (b *Books) BatchRecords(ctx context.Context, name string, payloads bool) iter.Seq2[job.Record, error] {
	return func(yield func(job.Record, error) bool) {
		for from := int64(0); ; from += namesPage {
			ids, err := b.c.LRange(ctx, b.keys.BatchIDs(name), from, from+namesPage-1).Result()
			if err != nil {
				yield(job.Record{}, fmt.Errorf("read batch %q of %s: %w", name, b.cfg.Gateway, err))
				return
			}
			for r, err := range b.Records(ctx, ids, payloads) {
				if err != nil {
					err = fmt.Errorf("read batch %q of %s: %w", name, b.cfg.Gateway, err)
				}
				if r.Job.Batch != name { // gone, or admitted again under another batch
					r = job.Record{Job: job.Job{ID: r.Job.ID, Gateway: b.cfg.Gateway, Batch: name}}
				}
				if !yield(r, err) || err != nil {
					return
				}
			}
			if len(ids) < namesPage {
				return
			}
		}
	}
}

// BatchStart is a batch that a gateway knows or has known; its totals may have expired.
type BatchStart struct {
	Name  string
	First time.Time // when its first job was accepted
}

// BatchStarts returns the batches of many gateways on one Redis, in the order of all, in one round trip.
func BatchStarts(ctx context.Context, all []*Books) ([][]BatchStart, error) {
	if len(all) == 0 {
		return nil, nil
	}
	cmds := make([]*redis.ZSliceCmd, len(all))
	_, _ = all[0].c.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, b := range all {
			cmds[i] = p.ZRangeWithScores(ctx, b.keys.Batches(), 0, -1)
		}
		return nil
	})
	starts := make([][]BatchStart, len(all))
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return nil, fmt.Errorf("read the batches of %s: %w", all[i].cfg.Gateway, err)
		}
		for _, z := range cmd.Val() {
			name, _ := z.Member.(string)
			starts[i] = append(starts[i], BatchStart{name, record.Moment(int64(z.Score))})
		}
	}
	return starts, nil
}

// BatchOf names one batch at one gateway.
type BatchOf struct {
	*Books
	Name string
}

// Batches returns the totals of many batches on one Redis, in the order of all, in one round trip. Expired ones
// have no places.
func Batches(ctx context.Context, all []BatchOf) ([]record.Batch, error) {
	if len(all) == 0 {
		return nil, nil
	}
	cmds := make([]*redis.MapStringStringCmd, len(all))
	_, _ = all[0].c.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, b := range all {
			cmds[i] = p.HGetAll(ctx, b.keys.Batch(b.Name))
		}
		return nil
	})
	books := make([]record.Batch, len(all))
	for i, cmd := range cmds {
		fields, err := cmd.Result()
		if err == nil {
			books[i], err = record.ParseBatch(fields)
		}
		if err != nil {
			return nil, fmt.Errorf("the books of batch %q at %s: %w", all[i].Name, all[i].cfg.Gateway, err)
		}
	}
	return books, nil
}

// approvals returns the approval argument of accept.lua, with a leading blank: the sums up to which batches
// need no approval, and who submits the jobs. It is empty if no approval is needed.
func (b *Books) approvals(ctx context.Context) string {
	who, known := roles.Of(ctx)
	if !known {
		who = roles.Identity{Proof: roles.ByRedis}
	}
	return b.ReplacedBy(who)
}

// ReplacedBy returns the same as approvals for the given user, for deadletter.Rules.
func (b *Books) ReplacedBy(who roles.Identity) string {
	sums := b.cfg.Approval.Setting()
	if sums == "" {
		return ""
	}
	return " " + sums + " " + record.Sender(string(who.Proof), who.Name, who.Person)
}

// awaitsText returns the error of jobs whose batch awaits approval.
func awaitsText(why string) string { return "its batch awaits an approval: " + why }

// Awaiting returns the names of the batches that await approval, longest waiting first.
func (b *Books) Awaiting(ctx context.Context) ([]string, error) {
	names, err := b.c.ZRange(ctx, b.keys.Awaiting(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read which batches of %s await an approval: %w", b.cfg.Gateway, err)
	}
	return names, nil
}

// Approver is who approves or rejects something, and why.
type Approver struct {
	// Who is the name of the token or login. Person is the token's owner; empty if not configured.
	Who, Person, Why string
}

// ApproveBatch releases a batch that awaits approval, in the state that the person was shown
// (record.Batch.ApprovedAs). Its parked jobs are admitted again in file order, after all jobs that already
// wait. If ApproveBatch returns an error with code usage or failed, nothing was changed.
func (b *Books) ApproveBatch(ctx context.Context, name string, by Approver, shown string, did func(Shelved) error) error {
	n, err := record.Approve.Act(ctx, b.c, []string{b.keys.Batch(name), b.keys.Awaiting(), b.keys.Shelving()}, b.cfg.NowMicros.Now(), name, by.Who, by.Why, shown, by.Person).Int()
	if err != nil {
		return err
	}
	if err := b.notApproved(ctx, name, by.Who, n); err != nil {
		return err
	}
	s := &shelving{b: b, name: name, what: "approve", text: job.WasApproved, did: did}
	return s.byItself(ctx)
}

// notApproved returns why approve.lua changed nothing, or nil if it did.
func (b *Books) notApproved(ctx context.Context, name, who string, answer int) error {
	no := func(code job.Code, hint, format string, args ...any) error {
		return &job.Error{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	switch answer {
	case 0:
		return no(job.CodeNotFound, "", "%s knows no batch %q", b.cfg.Gateway, name)
	case 1:
		return nil
	case 2:
		text := ""
		if batch, _, err := b.Batch(ctx, name); err == nil && batch.Awaits.By != "" {
			text = ": " + batch.Awaits.By + " has approved it"
		}
		return no(job.CodeFailed, "", "batch %q awaits no approval at %s%s", name, b.cfg.Gateway, text)
	case 3:
		return no(job.CodeFailed, "look at the batch again, and approve what it is now", "batch %q at %s is no longer as it was shown, and nothing was approved", name, b.cfg.Gateway)
	case 4:
		return no(job.CodeFailed, "ask another approver", "%s submitted jobs of batch %q, and nobody may approve what they submitted", who, name)
	case 5:
		return no(job.CodeFailed, `end that with "batch resume" first, if it is to go on`, "batch %q is cancelled at %s", name, b.cfg.Gateway)
	}
	return redisdb.BadReply("approve.lua", strings.TrimSpace(fmt.Sprint(answer)))
}

// KeepPrints stores, for a while, the fingerprints of the payees and amounts of a batch's jobs.
func (b *Books) KeepPrints(ctx context.Context, batch string, prints []byte, stay time.Duration) error {
	return b.c.Set(ctx, b.keys.Prints(batch), prints, stay).Err()
}

// Prints returns what KeepPrints stored, or nil.
func (b *Books) Prints(ctx context.Context, batch string) ([]byte, error) {
	text, err := b.c.Get(ctx, b.keys.Prints(batch)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return text, err
}
