package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"spillway/internal/access"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/outcome"
)

const (
	looksAtOnce = 256              // most look-ups of one gateway in flight in a process
	askLook     = 20 * time.Second // how often pending jobs are checked, however far off their next look-ups are; it shows other processes that look-ups are made
	askRest     = time.Second      // pause if no look-up may be made
	slotWithin  = 2 * time.Second  // how long a look-up waits for its slot before it claims
	pageWithin  = time.Minute      // additional time for a look-up with several pages
	firstRetry  = time.Second      // the first back-off of failing look-ups; it doubles
	lastRetry   = 10 * time.Minute
)

// askers counts the look-ups of one gateway in flight in this process.
type askers struct {
	mu       sync.Mutex
	reaching int // without a claim so far
	at       int // all
}

// more starts up to n look-ups, as far as the maximum allows, and returns how many.
func (a *askers) more(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n = max(min(n-a.reaching, looksAtOnce-a.at), 0)
	a.reaching, a.at = a.reaching+n, a.at+n
	return n
}

// reached records that a look-up has its claim, or got none.
func (a *askers) reached() { a.add(-1, 0) }
func (a *askers) over()    { a.add(0, -1) }

func (a *askers) add(reaching, at int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reaching, a.at = a.reaching+reaching, a.at+at
}

// ask starts the look-ups that are due and allowed, and returns when there may be more. If look-ups are no
// longer configured, it parks pending jobs.
func (u *unit) ask(ctx context.Context) time.Duration {
	s := u.now()
	if s.asks == nil {
		return u.unask(ctx, s)
	}
	if !u.data.Free() || u.machine.unfit() != nil {
		return askRest
	}
	n, next, err := s.books.MayAsk(ctx, u.askLimits(s))
	if err != nil {
		u.complain(ctx, "look-ups not made, trying again", err)
		return loopBackoff
	}
	for range u.askers.more(n) {
		u.loops.Go(func() { u.askOne(ctx, s) })
	}
	switch {
	case n > 0: // each of them calls again when it has its claim
		return askRest
	case next < 0:
		return -1
	}
	return min(max(next, time.Millisecond), askLook)
}

// unask parks pending jobs for which no process makes look-ups any more.
func (u *unit) unask(ctx context.Context, s *set) time.Duration {
	const why = "it may have been charged, and the configuration has no look-up for its gateway any more"
	parked, next, err := s.books.Unask(ctx, why)
	if err != nil {
		u.complain(ctx, "pending jobs not parked, trying again", err)
		return loopBackoff
	}
	if parked > 0 {
		u.log.Warn("pending jobs are parked as unknown_outcome: no look-up is configured any more", "jobs", parked)
	}
	if next == 0 && parked == 0 {
		return loopBackoff
	}
	return next
}

// askLimits returns the limits on look-ups currently in force: their own and, while jobs wait, their share of
// the gateway's.
func (u *unit) askLimits(s *set) (all []ledger.AskLimit) {
	u.pacing.Lock()
	limits := u.kept.Limits
	u.pacing.Unlock()
	for _, l := range limits {
		n, window := float64(l.N)*s.asks.Share, l.Window
		if n < 1 { // one in a longer window instead
			n, window = 1, time.Duration(float64(window)/n)
		}
		all = append(all, ledger.AskLimit{Limit: job.Limit{N: int64(n), Window: window}, WhileQueued: true})
	}
	for _, l := range s.asks.Limits {
		all = append(all, ledger.AskLimit{Limit: l})
	}
	return all
}

// lookUp is one look-up in flight.
type lookUp struct {
	u     *unit
	s     *set
	pacer workerPacer
	look  job.Look
	slot  job.Slot
	at    time.Time     // when its request was written
	took  time.Duration // its duration
	until time.Time     // no other process makes it before
}

// askOne takes a slot, then claims a due look-up and makes it. In this order, no claimed look-up has to wait.
func (u *unit) askOne(ctx context.Context, s *set) {
	defer u.asker.nudge() // there is room for another one
	defer u.askers.over()
	l := &lookUp{u: u, s: s, pacer: workerPacer{u.pacer, s.cfg.Circuit, u.machine, s.tokens}}
	claimed := l.begin(ctx)
	u.askers.reached()
	if !claimed {
		return
	}
	u.asker.nudge()
	ctx = context.WithoutCancel(ctx) // a stop waits for it, as for calls
	f, made := l.make(ctx)
	l.end(ctx, f, made)
}

// begin takes a slot and claims a look-up for it.
func (l *lookUp) begin(ctx context.Context) bool {
	if !l.take(ctx) {
		return false
	}
	owner := l.u.owner + "." + strconv.FormatUint(l.u.looked.Add(1), 36)
	look, _, claimed, err := l.s.books.ClaimLook(ctx, l.claim(owner, ""))
	if claimed && err == nil {
		err = l.s.asks.has(look.Job.Route)
	}
	if claimed && err == nil {
		l.look = look
		wait := l.inLane(ctx)
		if wait > 0 {
			l.write(ctx, ledger.LookEnd{Next: wait, Unmade: true})
		}
		return wait == 0
	}
	_ = l.pacer.Release(context.WithoutCancel(ctx), l.slot)
	if err != nil {
		l.u.complain(ctx, "a look-up not made", err)
	}
	if claimed { // this process's configuration can't open its payload, or lacks its route: it counts as failed, so that an operator hears of it
		l.look = look
		l.write(ctx, ledger.LookEnd{Finding: job.Finding{Failed: true, Error: err.Error()}, Next: job.PostponedFor})
	}
	return false
}

// inLane takes a permit of the job's lane for the look-up. Without one it gives the slot back and returns how
// long until there is one.
func (l *lookUp) inLane(ctx context.Context) time.Duration {
	ctx = context.WithoutCancel(ctx)
	slot, wait, err := l.pacer.Ask(ctx, l.slot, l.look.Job.Lane)
	if err != nil {
		l.u.complain(ctx, "a look-up not made", err)
		wait = askRest
	}
	if l.slot = slot; wait > 0 {
		_ = l.pacer.Release(ctx, l.slot)
	}
	return wait
}

// claim returns a claim that lasts as long as the look-up can take from now on.
func (l *lookUp) claim(owner, page string) ledger.Claim {
	now := time.Now()
	long := max(l.pacer.Due(l.slot).Sub(now), 0) + l.s.cfg.Request.Timeout + claimMargin
	if l.s.asks.Pages > 1 {
		long += pageWithin
	}
	l.until = now.Add(long)
	return ledger.Claim{Owner: owner, Page: page, For: long, Limits: l.u.askLimits(l.s)}
}

// claimMargin is how much longer a claim lasts than its look-up may take.
const claimMargin = 10 * time.Second

// take waits for an access token and a slot, for at most slotWithin.
func (l *lookUp) take(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, slotWithin)
	defer cancel()
	if l.s.tokens.Wait(ctx) != nil {
		return false
	}
	var err error
	l.slot, err = l.pacer.Take(ctx, 1, "")
	return err == nil
}

// make makes the look-up, page by page. made is false if nothing was sent, for a reason that is not the
// gateway's.
func (l *lookUp) make(ctx context.Context) (f job.Finding, made bool) {
	q, page := l.s.asks.For(l.look), ""
	if !q.any() {
		_ = l.pacer.Release(ctx, l.slot)
		return job.Finding{Verdict: job.LookLater, Error: "the configuration has no look-up for a job like this"}, true
	}
	for n := 1; ; n++ {
		if f, made = l.request(ctx, q, page); !made || f.Page == "" {
			return f, made
		}
		if n >= l.s.asks.Pages {
			return job.Finding{Verdict: job.LookLater, Status: f.Status, Error: fmt.Sprintf("it is not on the first %d pages of the list, and there are more", n)}, true
		}
		if page = f.Page; !l.goOn(ctx) {
			return job.Finding{}, false
		}
	}
}

// goOn takes a slot for the next page and extends the claim. It returns false if that was too late.
func (l *lookUp) goOn(ctx context.Context) bool {
	for until := l.until; time.Now().Before(until) && l.u.ctx.Err() == nil; {
		if !l.take(ctx) {
			if !await(l.u.ctx, firstWrite) { // it may fail at once: while this machine lacks something, or the configuration was replaced
				return false
			}
			continue
		}
		_, next, claimed, err := l.s.books.ClaimLook(ctx, l.claim(l.look.Owner, l.look.Job.ID))
		if claimed && err == nil {
			if next = l.inLane(ctx); next == 0 {
				return true
			}
		} else {
			_ = l.pacer.Release(ctx, l.slot)
		}
		if next < 0 || !await(l.u.ctx, max(min(next, askRest), time.Millisecond)) {
			return false
		}
	}
	return false
}

// request makes one request at its slot, and applies what it says about the gateway.
func (l *lookUp) request(ctx context.Context, q query, page string) (f job.Finding, made bool) {
	res := l.send(ctx, q, page)
	if res.Late || res.Renewed || res.Stage == job.NotSent && errors.Is(res.Err, job.ErrLocal) {
		if res.Stage == job.NotSent {
			_ = l.pacer.Release(ctx, l.slot)
		} else {
			l.pacer.End(ctx, l.slot)
		}
		return job.Finding{}, false
	}
	f = q.Judge(outcome.LookInput{Result: res, Look: l.look, Received: time.Now()})
	l.tell(ctx, res, f)
	if res.Stage == job.NotSent && res.Wrote.IsZero() {
		_ = l.pacer.Release(ctx, l.slot)
	} else {
		l.pacer.End(ctx, l.slot)
	}
	if l.at.IsZero() {
		l.at = res.Wrote
	}
	l.took += res.Took
	return f, true
}

// send writes a request at its slot, with an access token if the gateway wants one.
func (l *lookUp) send(ctx context.Context, q query, page string) job.Result {
	r := job.LookRequest{Look: l.look, Key: l.look.Key(), Page: page, Due: l.pacer.Due(l.slot),
		TooLate: func(now time.Time) bool { return l.pacer.TooLate(l.slot, now) },
		Wrote:   func(at time.Time) { l.pacer.Written(l.slot, at) }}
	var token *access.Token
	if l.s.tokens != nil {
		if token = l.s.tokens.Current(); token == nil {
			return job.Result{Stage: job.NotSent, Err: errNoToken}
		}
		r.Bearer = token.Text
	}
	res := q.Send(ctx, r)
	l.u.machine.called(res.Err)
	switch {
	case token == nil || res.Stage != job.Answered:
	case res.Status == http.StatusUnauthorized:
		res.Renewed = l.s.tokens.Refused(ctx, token)
	default:
		token.Works()
	}
	return res
}
