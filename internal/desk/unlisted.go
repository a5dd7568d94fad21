package desk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Unlisted is a gateway that has or had jobs and is not configured.
type Unlisted struct {
	Gateway string `json:"gateway"`
	// Totals are the jobs that are not over, with their money as far as it is known: that of parked jobs, and
	// that of the others' batches.
	job.Totals
	// Unsummed is how many of the jobs are in no sum, because they wait and have no batch.
	Unsummed int64            `json:"without_sum"`
	Waiting  int64            `json:"waiting"` // scheduled, queued, in flight, retrying or pending
	Parked   map[string]int64 `json:"parked"`  // by reason; reasons without jobs are left out
	Done     int64            `json:"done"`
	// LastServed is when a dispatcher of it last gave a sign of life; nil if never.
	LastServed *time.Time `json:"last_served"`
	// Served says that one is probably running, with another configuration.
	Served bool `json:"served"`
	// Moving is an unfinished "rename OLD NEW" or "forget NAME". Empty: none.
	Moving string `json:"moving,omitempty"`
	// Damaged is why it can't be read; empty if it can.
	Damaged string `json:"damaged,omitempty"`
}

// mostBatches bounds how many batches of a gateway are read for the money of waiting jobs.
const mostBatches = 200

// Text returns "500 jobs (EUR 12,345.00) of up, which the file does not have".
func (u Unlisted) Text() string {
	text := u.Totals.String() + " of " + u.Gateway + ", which the file does not have"
	if u.Unsummed > 0 && len(u.Amount) > 0 {
		text = strings.Replace(text, " (", " (at least ", 1)
	}
	if u.Damaged != "" {
		text = fmt.Sprintf("the jobs of %s, which the file does not have, can't be looked at: %s", u.Gateway, u.Damaged)
	}
	if u.Moving != "" {
		text += "; \"dispatcher gateway " + u.Moving + "\" was begun and is not over"
	}
	if u.Served {
		text += "; a dispatcher with another file serves it"
	}
	return text
}

// Hint says what to do about it.
func (u Unlisted) Hint() string {
	if u.Moving != "" {
		return "wait until it is over; if it was killed, run it again: it goes on"
	}
	if u.Served {
		return "nothing, if that is meant; see: dispatcher gateway list"
	}
	return fmt.Sprintf("they are not called: put it back into the file, or: dispatcher gateway rename %s NEW, or: dispatcher gateway forget %[1]s", u.Gateway)
}

// NeedsPerson reports whether its jobs are not called until an operator acts.
func (u Unlisted) NeedsPerson() bool { return !u.Served || u.Moving != "" }

// UnlistedOf returns the gateways with unfinished jobs that are not configured, sorted by name. listed are the
// configured names.
func UnlistedOf(ctx context.Context, c redis.UniversalClient, listed []string) ([]Unlisted, error) {
	names, err := redisdb.Registered(ctx, c)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(without(names, listed), func(name string) bool { return job.CheckGateway(name) != nil })
	all, err := lookAt(ctx, c, names)
	return slices.DeleteFunc(all, func(u Unlisted) bool { return u.Jobs == 0 && u.Damaged == "" && u.Moving == "" }), err
}

// without returns the names that are not listed. There may be thousands of both.
func without(names, listed []string) []string {
	known := make(map[string]bool, len(listed))
	for _, name := range listed {
		known[name] = true
	}
	return slices.DeleteFunc(names, func(name string) bool { return known[name] })
}

// lookAt reads gateways without a configuration. It leaves out those that never had a job, because an asynq
// queue may belong to another program.
func lookAt(ctx context.Context, c redis.UniversalClient, names []string) ([]Unlisted, error) {
	books := make([]*ledger.Books, len(names))
	for i, name := range names {
		books[i] = ledger.New(c, ledger.Config{Gateway: name})
	}
	var all []Unlisted
	for i, seen := range ledger.LookAll(ctx, c, books) {
		err := seen.Err
		u := Unlisted{Gateway: names[i], Parked: map[string]int64{}}
		if err == nil {
			u.Moving, err = redisdb.Moving(ctx, c, u.Gateway)
		}
		if err == nil && seen.Accepted > 0 {
			err = u.fill(ctx, c, books[i], seen.Standing)
		}
		if redisdb.Away(err) || ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			u.Damaged = err.Error()
		}
		if err != nil || seen.Accepted > 0 || u.Moving != "" {
			all = append(all, u)
		}
	}
	return all, nil
}

func (u *Unlisted) fill(ctx context.Context, c redis.UniversalClient, b *ledger.Books, s record.Standing) error {
	u.Waiting, u.Done = s.Queued+s.InFlight+s.Scheduled+s.Retrying+s.Pending, s.Done
	u.Jobs = u.Waiting
	for r, n := range s.Parked {
		u.Parked[string(r)] = n
		u.Jobs += n
	}
	last, serves, err := dispatch.LastServed(ctx, c, u.Gateway)
	if u.LastServed, u.Served = when(last), serves; err != nil || u.Jobs == 0 {
		return err
	}
	parked, err := b.ParkedMoney(ctx)
	if err != nil {
		return err
	}
	for _, sum := range parked {
		u.addMoney(sum)
	}
	waiting, err := b.WaitingMoney(ctx, mostBatches)
	u.addMoney(waiting)
	u.Unsummed = max(u.Waiting-waiting.Jobs, 0)
	return err
}

func (u *Unlisted) addMoney(sum job.Totals) {
	u.Amount.AddAll(sum.Amount)
	u.NoAmount += sum.NoAmount
}

// Of returns the desk with what it needs to say where else something may be: Redis, and the names of all
// configured gateways.
func (d *Desk) Of(c redis.UniversalClient, listed []string) *Desk {
	d.redis, d.listed = c, listed
	return d
}

// Only hides all gateways from the desk but those that Of named.
func (d *Desk) Only() { d.only = true }

// Unlisted returns the gateways with jobs that are not configured. A desk without Of returns none.
func (d *Desk) Unlisted(ctx context.Context) ([]Unlisted, error) {
	if d.redis == nil || d.only {
		return nil, nil
	}
	return UnlistedOf(ctx, d.redis, d.listed)
}

// unlistedWith returns the names of the gateways that are not configured and have a key.
func (d *Desk) unlistedWith(ctx context.Context, key func(redisdb.Keys) string) (with []string, err error) {
	if d.redis == nil || d.only {
		return nil, nil
	}
	names, err := redisdb.Registered(ctx, d.redis)
	if err != nil {
		return nil, err
	}
	names = without(names, d.listed)
	found := make([]*redis.IntCmd, len(names))
	if _, err := d.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			found[i] = p.Exists(ctx, key(redisdb.NewKeys(name)))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i, name := range names {
		if found[i].Val() > 0 {
			with = append(with, name)
		}
	}
	return with, nil
}

// notHere returns the error for something that no gateway of the desk knows; what is, for example, "job %q"
// with its name. If a gateway that is not configured knows it, the error says so; otherwise its hint is
// otherwise.
func (d *Desk) notHere(ctx context.Context, what, otherwise string, key func(redisdb.Keys) string) error {
	with, err := d.unlistedWith(ctx, key)
	if err != nil {
		return err
	}
	if len(with) == 0 {
		return d.unknown(ctx, "no "+what, otherwise)
	}
	return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("no gateway of the file knows %s, but %s does, which the file does not have", what, strings.Join(with, ", ")),
		Hint: fmt.Sprintf("put %s back into the file, or: dispatcher gateway rename %[1]s NEW; \"dispatcher gateway list\" shows what it has", with[0])}
}

// unknown returns the error for something that Redis does not know. After a restore that proves nothing: what
// was accepted since the snapshot is missing, too.
func (d *Desk) unknown(ctx context.Context, message, hint string) error {
	all, errs := abreast(ctx, d, func(ctx context.Context, g *Gateway) (dispatch.Restored, error) {
		return dispatch.RestoredOf(ctx, g.redis, g.Gateway)
	})
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	if i := slices.IndexFunc(all, func(r dispatch.Restored) bool { return r.Doubt != "" }); i >= 0 {
		message += ", but Redis can't tell: its data is from " + job.Moment(all[i].From)
		hint = "it may have been accepted since, and sent; look at the gateway and in your own books. " + all[i].Doubt
	} else if i := slices.IndexFunc(all, func(r dispatch.Restored) bool { return !r.Till.IsZero() }); i >= 0 {
		hint += fmt.Sprintf(", or it was accepted from %s to %s: that is lost, because Redis was restored to older data", job.Moment(all[i].From), job.Moment(all[i].Till))
	}
	return &job.Error{Code: job.CodeNotFound, Message: message, Hint: hint}
}

func (d *Desk) noJob(ctx context.Context, id string) error {
	return d.notHere(ctx, fmt.Sprintf("job %q", id), "it was never enqueued here, or it was done longer ago than dedupe",
		func(k redisdb.Keys) string { return k.Job(id) })
}

// NoBatch returns the error for a batch that no gateway of the desk knows.
func (d *Desk) NoBatch(ctx context.Context, name string) error {
	return d.notHere(ctx, fmt.Sprintf("batch %q", name), "no job of it was enqueued here, or its last job was over longer ago than dedupe",
		func(k redisdb.Keys) string { return k.Batch(name) })
}

// BatchElsewhere is the part of a batch at a gateway that is not configured.
type BatchElsewhere struct {
	Gateway string `json:"gateway"`
	job.Totals
}

// Text returns "12 jobs (EUR 10.50) of it are at up, which the file does not have".
func (e BatchElsewhere) Text() string {
	return e.Totals.String() + " of it are at " + e.Gateway + ", which the file does not have: they are not among these"
}

// elsewhere returns the parts of a batch at gateways that are not configured.
func (d *Desk) elsewhere(ctx context.Context, batch string) (all []BatchElsewhere, err error) {
	with, err := d.unlistedWith(ctx, func(k redisdb.Keys) string { return k.Batch(batch) })
	for _, name := range with {
		b, _, err := ledger.New(d.redis, ledger.Config{Gateway: name}).Batch(ctx, batch)
		if err != nil {
			return nil, err
		}
		all = append(all, BatchElsewhere{name, b.Sum(func(record.Place) bool { return true })})
	}
	return all, err
}

// Explain returns the error that these gateways are not configured. It says so if Redis knows one of them.
func (d *Desk) Explain(ctx context.Context, names []string, unknown error) error {
	all, err := d.Unlisted(ctx)
	if err != nil {
		return unknown
	}
	for _, u := range all {
		if slices.Contains(names, u.Gateway) {
			return &job.Error{Code: job.CodeOf(unknown), Message: unknown.Error() + ", but Redis has " + u.Text(), Hint: u.Hint()}
		}
	}
	return unknown
}
