package deadletter

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
)

// Rules decide which parked jobs may be sent again, and with which idempotency key.
type Rules struct {
	Keys        bool          // the gateway has idempotency keys
	KeyLifetime time.Duration // how long after a key's first call another call may use it
	// ExpiredKeys permits jobs whose key the gateway has forgotten by now.
	ExpiredKeys bool
	// Asks says when the first look-up after a call is made. Zero: there are no look-ups.
	Asks job.Asks
	// RouteAsks is Asks for each route, by name.
	RouteAsks map[string]job.Asks
	// MayBeCharged permits discarding jobs that may have been charged.
	MayBeCharged bool
	// LoseAmounts permits a replacement to remove a readable amount.
	LoseAmounts bool
	// Approvals is what a replacement needs to know of approvals (ledger.Books.ReplacedBy). Empty: no batch
	// needs one.
	Approvals string
	Now       time.Time // on Redis's clock
	// Money returns the money of a replacing payload in the form stored in records. Nil: the gateway's jobs
	// have none.
	Money func(payload []byte) string
}

func (r Rules) money(payload []byte) string {
	if r.Money == nil {
		return ""
	}
	return r.Money(payload)
}

// Why a job is held back.
const (
	neverRoom  = "its cost is more than admission can ever grant: raise its burst or its limits"
	coversNone = `an earlier call may have charged, and a key of this gateway covers no second call: look it up, then use "dlq resolve"`
	noKeys     = `an earlier call may have charged, and the gateway keeps no idempotency keys: look it up, then use "dlq resolve"`
)

// Key returns what a replay does to a job's idempotency key. why is not empty if the job is held back instead.
// After a definite no, the next key is used, because a gateway answers a used key with its first answer again.
// In any other case the key stays, because only that makes another call safe if an earlier one may have
// charged.
func (r Rules) Key(rec job.Record) (change job.KeyChange, why string) {
	if why := rec.Reason.About().NoReplay; why != "" {
		return "", why
	}
	switch {
	case r.expired(rec):
		return "", job.Expired.About().NoReplay
	case rec.Replaced():
		return job.KeepKey, "" // the key is new with the payload and was never sent
	case saidNo(rec):
		return job.NextKey, ""
	}
	unsure := mayHaveCharged(rec)
	switch {
	case unsure && !r.Keys:
		return "", noKeys
	case unsure && r.KeyLifetime == 0:
		return "", coversNone
	case !unsure && (!r.Keys || r.KeyLifetime == 0 || rec.FirstCall.IsZero()):
		return job.KeepKey, ""
	case r.remembered(rec):
		return job.KeepKey, ""
	case r.ExpiredKeys:
		return job.ForgetKey, ""
	}
	return "", fmt.Sprintf("the gateway has forgotten its idempotency key after %s: look it up, or use --expired-keys", r.KeyLifetime)
}

func (r Rules) expired(rec job.Record) bool {
	return rec.Reason == job.Expired || (!rec.Job.Expires.IsZero() && !r.Now.Before(rec.Job.Expires))
}

func (r Rules) remembered(rec job.Record) bool {
	return !rec.FirstCall.IsZero() && r.Now.Sub(rec.FirstCall) < r.KeyLifetime
}

// saidNo reports whether the gateway gave a definite no to the current key: the payment was refused, and no
// call with the key had another answer. A job can also be refused before it is written, because it can't be
// made into a request any more. That does not answer an earlier call that may have charged.
func saidNo(rec job.Record) bool {
	switch {
	case rec.Reason != job.Refused || redirected(rec):
		return false
	case !rec.Unsure: // park.lua settles an earlier doubt together with the no
		return true
	}
	last, ok := lastCall(rec) // parked by an older version, which took any 4xx for a no
	return ok && last.Verdict == string(job.VerdictRefused) && last.Status == http.StatusPaymentRequired
}

// mayHaveCharged reports whether a call with the current key may have charged.
func mayHaveCharged(rec job.Record) bool {
	return rec.Unsure || rec.Reason == job.UnknownOutcome || redirected(rec)
}

// redirected reports whether the job was refused because of a redirection, which may follow the charge.
func redirected(rec job.Record) bool {
	last, ok := lastCall(rec)
	return ok && rec.Reason == job.Refused && last.Status >= 300 && last.Status <= 399
}

func lastCall(rec job.Record) (job.Call, bool) {
	if len(rec.History) == 0 {
		return job.Call{}, false
	}
	return rec.History[len(rec.History)-1], true
}

// Why a job is held back from a discard or a resolve.
const (
	inDoubt = "may have been charged: look it up, then dlq resolve"
	noDoubt = "it can't have been charged, so there is nothing to settle: replay or discard it"
	noLooks = "its gateway has no lookup in the file: look it up there, then dlq resolve --done or --not-done"
)

// Discard returns why a job is not discarded: it is unknown whether it was charged.
func (r Rules) Discard(rec job.Record) (change job.KeyChange, why string) {
	if rec.InDoubt() && !r.MayBeCharged {
		return "", inDoubt
	}
	return job.KeepKey, ""
}

// Ask returns why no look-up is made for a job: its outcome is not in doubt, or no look-up is configured.
func (r Rules) Ask(rec job.Record) (change job.KeyChange, why string) {
	switch {
	case !rec.InDoubt():
		return "", noDoubt
	case asksOf(rec.Job.Route, r.Asks, r.RouteAsks).First(rec.Taken) == 0:
		return "", noLooks
	}
	return job.KeepKey, ""
}

// Done returns why a job is not resolved as done: its outcome is not in doubt.
func (r Rules) Done(rec job.Record) (change job.KeyChange, why string) {
	if !rec.InDoubt() {
		return "", noDoubt
	}
	return job.KeepKey, ""
}

// settleExpired is the key change of a job that was not charged and has expired: it is settled without being
// admitted.
const settleExpired job.KeyChange = "expired"

// NotDone is Key for a job in doubt that an operator has found not to be charged, which is a definite no. An
// expired job is not called any more; it is settled, too, and parked as expired.
func (r Rules) NotDone(rec job.Record) (change job.KeyChange, why string) {
	switch {
	case !rec.InDoubt():
		return "", noDoubt
	case r.expired(rec):
		return settleExpired, ""
	}
	return job.SettleKey, ""
}

// NotDone resolves jobs in doubt as not done: they are admitted again, with their next key.
func (c BulkRun) NotDone(ctx context.Context, a job.Readmitter, r Rules) (BulkResult, error) {
	expired := func(j job.Return) bool { return j.Key == settleExpired }
	return c.run(ctx, r.NotDone, either(expired, removing(c.Store.expire), a.Readmit), readmitChunk)
}

// Done resolves jobs in doubt as done. They stay known for the dedupe window. reference is the gateway's own
// name for the payment of a single job; empty: unknown.
func (c BulkRun) Done(ctx context.Context, r Rules, dedupe time.Duration, reference string) (BulkResult, error) {
	resolve := func(ctx context.Context, jobs []job.Return) ([]bool, error) {
		return c.Store.Resolve(ctx, jobs, dedupe, reference)
	}
	return c.run(ctx, r.Done, removing(resolve), removeChunk)
}

// Ask makes look-ups for jobs in doubt, at once. again starts them, and reports for each job whether it was
// still parked as given.
func (c BulkRun) Ask(ctx context.Context, r Rules, again func(context.Context, []job.Return) ([]bool, error)) (BulkResult, error) {
	return c.run(ctx, r.Ask, removing(again), removeChunk)
}

// Discard removes the jobs for good. They stay known for the dedupe window. Jobs that may have been charged are
// held back, unless the rules permit them.
func (c BulkRun) Discard(ctx context.Context, r Rules, dedupe time.Duration) (BulkResult, error) {
	discard := removing(func(ctx context.Context, jobs []job.Return) ([]bool, error) {
		return c.Store.Discard(ctx, jobs, dedupe)
	})
	if c.Withdraw != nil {
		discard = either(waits, removing(c.Withdraw), discard)
	}
	return c.run(ctx, r.Discard, discard, removeChunk)
}

// waits reports whether a job is not parked, but waits for its call.
func waits(j job.Return) bool { return j.Reason == "" }

// taker takes one chunk out of the store.
type taker func(ctx context.Context, jobs []job.Return) (answers []job.Admittance, retry time.Duration, err error)

// removing returns a taker for an operation that needs no room.
func removing(remove func(context.Context, []job.Return) ([]bool, error)) taker {
	return func(ctx context.Context, jobs []job.Return) ([]job.Admittance, time.Duration, error) {
		removed, err := remove(ctx, jobs)
		answers := make([]job.Admittance, len(removed))
		for i, ok := range removed {
			answers[i] = job.Gone
			if ok {
				answers[i] = job.Enqueued
			}
		}
		return answers, 0, err
	}
}

// either passes the jobs for which so returns true to one taker, and the others to the other.
func either(so func(job.Return) bool, one, other taker) taker {
	return func(ctx context.Context, jobs []job.Return) ([]job.Admittance, time.Duration, error) {
		answers := make([]job.Admittance, len(jobs))
		var parts [2][]job.Return
		var places [2][]int
		for i, j := range jobs {
			n := 1
			if so(j) {
				n = 0
			}
			parts[n], places[n] = append(parts[n], j), append(places[n], i)
		}
		var retry time.Duration
		for n, take := range []taker{one, other} {
			if len(parts[n]) == 0 {
				continue
			}
			got, wait, err := take(ctx, parts[n])
			if err != nil {
				return nil, 0, err
			}
			for i, place := range places[n] {
				answers[place] = got[i]
			}
			retry = wait // of the other taker, the only one that may lack room
		}
		return answers, retry, nil
	}
}

// ByItself replaces an act's audit entry when ledger.Books.Readmit admits what Again returned. The script
// counts these replays of each job, so that the next one comes later, and none after the last.
func ByItself() string { return "again" }

// Again returns up to n jobs parked as exhausted that are due for an automatic replay. left is how many the
// rules hold back: these stay parked for an operator.
func (s *Store) Again(ctx context.Context, r Rules, n int64) (jobs []job.Return, left int, err error) {
	due := &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(r.Now.UnixMicro(), 10), Count: n}
	ids, err := s.c.ZRangeByScore(ctx, s.keys.Again(), due).Result()
	if err != nil {
		return nil, 0, s.unread(err)
	}
	records, err := s.records(ctx, ids, record.Listed())
	if err != nil {
		return nil, 0, err
	}
	for i, rec := range records {
		change, why := r.Key(rec)
		if rec.State == job.Parked && rec.Reason == job.Exhausted && why == "" && change == job.KeepKey {
			jobs = append(jobs, job.Return{ID: ids[i], Generation: rec.Generation, Reason: rec.Reason, Key: change})
			continue
		}
		if err := s.c.ZRem(ctx, s.keys.Again(), ids[i]).Err(); err != nil {
			return nil, left, s.unread(err)
		}
		left++
	}
	return jobs, left, nil
}
