package dispatch

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"spillway/internal/job"
)

// fate is what a gateway always does with a job.
type fate string

const (
	good      fate = "good"
	once      fate = "fails once"     // its first call that gets through to the gateway is answered 500
	delayed   fate = "first call 429" // once, without a word of how long to wait
	poisoned  fate = "always 500"     // it can't be digested
	forbidden fate = "always 403"     // of another merchant, say
	limited   fate = "always 429"     // without a word of how long to wait
	busy      fate = "always 503, 2s" // with Retry-After
	contended fate = "always 409"     // another program's call has its key
)

// bad reports whether a job of this fate is never charged.
func (f fate) bad() bool { return f != good && f != once && f != delayed }

// trouble is what is wrong with the gateway as a whole for a while.
type trouble struct {
	kind     string
	from, to time.Duration // since the beginning
}

// The kinds of trouble.
const (
	paused  = "paused by an operator"
	refused = "no connection"
	broken  = "500 for all"
	saving  = "500 for all, 30 % of them saved under their keys"
	flaky   = "500 for 30 %"
	askWait = "429 for all, Retry-After 3"
	tooMany = "429 for all, without Retry-After"
	outside = "503 for all, Retry-After 3"
	lockout = "401 for all"
	silent  = "no answer"
	lossy   = "30 % of the answers are lost"
)

var kinds = []string{paused, refused, broken, saving, flaky, askWait, tooMany, outside, lockout, silent, lossy}

// patient is how long a call waits for an answer.
const patient = 10 * time.Second

// called is one call as the gateway saw it.
type called struct {
	at     time.Duration // since the beginning
	job    string
	first  bool // of its job
	answer string
}

// payee is what the gateway knows of a job.
type payee struct {
	fate     fate
	calls    []int // places among all calls
	seen     int   // calls that got through to it
	charged  int
	saved    bool // a 500 is repeated under its key
	accepted time.Duration
	line     int // jobs that were accepted before it and not called yet when it was
}

// endpoint is a payment gateway in virtual time.
type endpoint struct {
	began    time.Time
	seed     uint64
	troubles []trouble

	mu      sync.Mutex
	jobs    map[string]*payee
	order   []string // of acceptance
	fresh   int      // accepted and not called yet
	calls   []called
	held    holds
	saved   map[string]bool // keys under which a 500 is repeated
	charges map[string]bool // keys

	quota  int // calls a second while trouble is "a quota"; 429 to the others
	second time.Duration
	inIt   int
}

func newEndpoint(p schedule) *endpoint {
	return &endpoint{began: time.Now(), seed: p.seed, troubles: p.troubles, jobs: map[string]*payee{},
		saved: map[string]bool{}, charges: map[string]bool{}}
}

// chance is the same for the same call of the same job in each run of a seed.
func (e *endpoint) chance(id string, call int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, id, call)
	return rand.New(rand.NewPCG(e.seed, h.Sum64()))
}

// accepted records a job that is admitted now.
func (e *endpoint) accepted(id string, f fate) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs[id] = &payee{fate: f, accepted: time.Since(e.began), line: e.fresh}
	e.order = append(e.order, id)
	e.fresh++
}

// waiting returns how many jobs were admitted and not called yet.
func (e *endpoint) waiting() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fresh
}

// now returns the trouble at a moment.
func (e *endpoint) now(at time.Duration) string {
	for _, t := range e.troubles {
		if t.kind != paused && t.from <= at && at < t.to {
			return t.kind
		}
	}
	return ""
}

var (
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errSilent  = errors.New("no answer within " + patient.String())
	errCut     = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
)

// reply is how the gateway answers a call.
type reply struct {
	job.Result
	takes time.Duration
	// holds applies what the answer says about the gateway as a whole, when it arrives. Nil: nothing.
	holds func(h *holds, at time.Duration)
}

// Send is one call: it is written at its slot, and answered some time later.
func (e *endpoint) Send(_ context.Context, c job.Request) job.Result {
	<-time.After(time.Until(c.Due))
	now := time.Now()
	if c.TooLate(now) {
		return job.Result{Stage: job.NotSent, Late: true, Err: errors.New("its slot has passed")}
	}
	now = time.Now()
	r := e.take(c, now.Sub(e.began))
	if r.Stage != job.NotSent {
		c.Wrote(now)
		r.Wrote = now
	}
	<-time.After(r.takes)
	r.Took = r.takes
	if r.holds != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		r.holds(&e.held, time.Since(e.began))
	}
	return r.Result
}

// take records a call and answers it.
func (e *endpoint) take(c job.Request, at time.Duration) reply {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.jobs[c.Job.ID]
	chance := e.chance(c.Job.ID, len(j.calls))
	takes := 20*time.Millisecond + time.Duration(chance.Int64N(int64(200*time.Millisecond)))
	r := e.answer(c, j, e.now(at), chance.IntN(100) < 30)
	if r.takes == 0 {
		r.takes = takes
	}
	if len(j.calls) == 0 {
		e.fresh--
	}
	j.calls = append(j.calls, len(e.calls))
	text := map[job.Stage]string{job.NotSent: "refused", job.Sent: "lost", job.Answered: strconv.Itoa(r.Status)}[r.Stage]
	e.calls = append(e.calls, called{at, c.Job.ID, len(j.calls) == 1, text})
	return r
}

func (e *endpoint) answer(c job.Request, j *payee, kind string, unlucky bool) reply {
	if kind == refused {
		return reply{Result: job.Result{Stage: job.NotSent, Err: errRefused}, takes: time.Millisecond}
	}
	j.seen++
	if j.fate == "always 400" { // the front refuses it, whatever is behind it
		return answered(400)
	}
	switch kind {
	case broken:
		return answered(500)
	case "500 for 70 %":
		if e.chance(c.Job.ID+"x", len(j.calls)).IntN(10) < 7 {
			return answered(500)
		}
	case "500 for all, saved ones repeated":
		if e.saved[c.Key] {
			r := answered(500)
			r.Header["Idempotent-Replayed"] = []string{"true"}
			return r
		}
		if unlucky && !e.charges[c.Key] {
			e.saved[c.Key], j.saved = true, true
		}
		return answered(500)
	case saving:
		if unlucky && !e.charges[c.Key] {
			e.saved[c.Key], j.saved = true, true
		}
		return answered(500)
	case silent:
		return reply{Result: job.Result{Stage: job.Sent, Err: errSilent}, takes: patient}
	case lossy:
		r := e.byFate(c, j)
		if unlucky {
			r.Result, r.holds = job.Result{Stage: job.Sent, Err: errCut}, nil
		}
		return r
	case flaky:
		if unlucky {
			return answered(500)
		}
	case "a quota", "a quota, without Retry-After":
		if at := time.Since(e.began).Truncate(time.Second); at != e.second {
			e.second, e.inIt = at, 0
		}
		if e.inIt++; e.inIt > e.quota {
			if kind == "a quota" {
				return wait(429, 1)
			}
			return answered(429)
		}
	case askWait, outside:
		r := wait(map[string]int{askWait: 429, outside: 503}[kind], 3)
		r.holds = func(h *holds, at time.Duration) { h.asked = at; h.told(at, 3*time.Second) }
		return r
	case tooMany, lockout:
		r := answered(map[string]int{tooMany: 429, lockout: 401}[kind])
		r.holds = func(h *holds, at time.Duration) { h.asked = at; h.grown(at) }
		return r
	}
	return e.byFate(c, j)
}

// believed is how many calls of one job may hold the gateway before the trouble is known to be the job's own. crowd is how many
// such jobs must be found before a new one no longer holds it.
const believed, crowd = 2, 3

// heeded is how long any job's request to wait is believed after all jobs were told to wait.
const heeded = 45 * time.Second

func (e *endpoint) byFate(c job.Request, j *payee) reply {
	own := func(r reply, d time.Duration) reply {
		r.holds = func(h *holds, at time.Duration) { h.own(c.Job.ID, at, d) }
		return r
	}
	switch {
	case e.saved[c.Key]:
		r := answered(500)
		r.Header["Idempotent-Replayed"] = []string{"true"}
		return r
	case j.fate == poisoned, j.fate == once && j.seen == 1:
		return answered(500)
	case j.fate == delayed && j.seen == 1:
		return own(answered(429), 0)
	case j.fate == forbidden, j.fate == limited:
		return own(answered(map[fate]int{forbidden: 403, limited: 429}[j.fate]), 0)
	case j.fate == contended:
		return answered(409)
	case j.fate == busy:
		return own(wait(503, 2), 2*time.Second)
	}
	r := answered(200)
	r.holds = (*holds).over
	if e.charges[c.Key] {
		r.Header["Idempotent-Replayed"] = []string{"true"}
		return r
	}
	e.charges[c.Key] = true
	j.charged++
	return r
}

func answered(n int) reply {
	return reply{Result: job.Result{Stage: job.Answered, Status: n, Header: map[string][]string{}, Body: []byte(`{"id":"ch_1"}`)}}
}

func wait(n, seconds int) reply {
	r := answered(n)
	r.Header["Retry-After"] = []string{strconv.Itoa(seconds)}
	return r
}

// holds is how long the gateway may be held because of its answers: as long as it said, or 1 s, 2 s, 4 s and so on up to 60 s,
// from 1 s again when the last hold ended 30 s ago.
type holds struct {
	spans []trouble
	delay time.Duration
	until time.Duration
	clear time.Duration  // the first success since
	by    map[string]int // answers of each job that were its own trouble
	asked time.Duration  // when it last asked everybody to wait
}

func (h *holds) told(at, d time.Duration) { h.span(at, at+d) }

func (h *holds) grown(at time.Duration) {
	if at < h.until {
		return
	}
	if h.delay *= 2; h.delay == 0 || h.clear > h.until && at-h.clear >= 30*time.Second {
		h.delay = time.Second
	}
	h.delay = min(h.delay, time.Minute)
	h.span(at, at+h.delay)
}

// over records a success.
func (h *holds) over(at time.Duration) {
	if at > h.until && h.clear < h.until {
		h.clear = at
	}
}

func (h *holds) span(from, to time.Duration) {
	if to > h.until {
		h.until = to
		h.spans = append(h.spans, trouble{"a hold", from, to})
	}
}

// own is trouble of a single job: it is believed a few times.
func (h *holds) own(id string, at, d time.Duration) {
	if h.by == nil {
		h.by = map[string]int{}
	}
	if h.by[id]++; h.asked > 0 && at-h.asked < heeded && h.by[id] > believed {
		h.told(at, max(d, time.Second))
		return
	}
	if h.by[id] > believed || len(h.by) > crowd {
		return
	}
	if d > 0 {
		h.told(at, d)
	} else {
		h.grown(at)
	}
}

func (c called) String() string {
	return fmt.Sprintf("%s at %s: %s", c.job, c.at.Round(time.Millisecond), c.answer)
}
