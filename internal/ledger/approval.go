package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
)

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
