package deadletter

import (
	"fmt"
	"iter"
	"math"
	"net/http"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
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
	// Beat is the last sign of life of the gateway's data, and SetBack is by how much Redis's clock was set
	// back in all: both make a key older than Now alone says (key_age in record.lua).
	Beat    time.Time
	SetBack time.Duration
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

// remembered reports whether the gateway still knows the key by its age, as key_age in record.lua counts it.
func (r Rules) remembered(rec job.Record) bool {
	now := r.Now
	if r.Beat.After(now) {
		now = r.Beat
	}
	age := max(now.Sub(rec.FirstCall), 0) + max(r.SetBack-rec.FirstCallBack, 0)
	return !rec.FirstCall.IsZero() && age < r.KeyLifetime
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

// Preview counts what an act would do to its jobs, before anyone has confirmed it.
type Preview struct {
	// Seen remembers the jobs for the act. Nil: not remembered.
	Seen *Seen
	// Until is just after the last job counted: jobs parked from then on are excluded. Zero: none was counted.
	Until time.Time
	// Held is how many jobs would be held back, by reason.
	Held map[string]int
	// Often is how many jobs would be taken that were replayed OftenReplayed times or more.
	Often int
}

// Meet counts the next job, with the change of its key, or with the reason why it would be held back. It reports
// whether the job would be taken.
func (p *Preview) Meet(r job.Record, change job.KeyChange, why string) bool {
	if p.Seen != nil {
		p.Seen.Add(r, change, why)
	}
	p.Until = r.ParkedAt.Add(time.Microsecond)
	if why != "" {
		if p.Held == nil {
			p.Held = map[string]int{}
		}
		p.Held[why]++
		return false
	}
	if r.Replays >= OftenReplayed {
		p.Often++
	}
	return true
}

// OftenReplayed is after how many unsuccessful replays a preview warns: another one may fail, too.
const OftenReplayed = 3

// Seen remembers parked jobs that were just read, with the decision on each, so that a BulkRun need not read
// them again. It keeps only what a bulk run needs, of at most a million jobs (some 50 MB), and for at most 30 s:
// the bulk run reads the rest itself. The script that takes a job checks that it is still parked as it was.
type Seen struct {
	clock clock.Clock
	since time.Time // when the first one was read
	jobs  []*block
	count int
	kinds []decision
	known map[decision]uint32 // indexes in kinds
	ended bool                // no more are added: what follows is read again
}

// block is some jobs, which don't move as more are added.
type block struct {
	jobs []seen
	text []byte // id and money of each, one after the other
}

// seen is a due job in few bytes, without pointers, which the garbage collector would follow again and again.
type seen struct {
	parked    int64
	from      uint32 // where its id begins
	id, money uint16 // their lengths
	kind      uint32 // index of its decision
}

// decision is what many jobs have in common.
type decision struct {
	reason           job.Reason
	key              job.KeyChange
	why              string
	generation, cost int64
}

const (
	mostSeen  = 1_000_000
	seenBlock = 1000
	seenFor   = 30 * time.Second
)

// NewSeen returns an empty Seen.
func NewSeen(c clock.Clock) *Seen { return &Seen{clock: c, known: map[decision]uint32{}} }

// Add remembers the next job that List has yielded: what becomes of its key, or why it is held back. Payloads
// are not remembered: the jobs from the first one with a payload on are read again, and so are those from the
// first one that is not parked.
func (s *Seen) Add(r job.Record, key job.KeyChange, why string) {
	if s.since.IsZero() {
		s.since = s.clock.Now()
	}
	if s.ended = s.ended || s.count == mostSeen || len(r.Job.Payload) > 0 || r.State != job.Parked || max(len(r.Job.ID), len(r.Money)) > math.MaxUint16; s.ended {
		return
	}
	if s.count%seenBlock == 0 {
		s.jobs = append(s.jobs, &block{jobs: make([]seen, 0, seenBlock)})
	}
	s.count++
	b := s.jobs[len(s.jobs)-1]
	b.jobs = append(b.jobs, seen{Cursor(r), uint32(len(b.text)), uint16(len(r.Job.ID)), uint16(len(r.Money)), //nolint:gosec // looked at above
		s.kind(decision{r.Reason, key, why, r.Generation, r.Job.Cost})})
	b.text = append(append(b.text, r.Job.ID...), r.Money...)
}

// kind returns the index of a decision.
func (s *Seen) kind(d decision) uint32 {
	if n := len(s.kinds) - 1; n >= 0 && s.kinds[n] == d { // nearly always
		return uint32(n) //nolint:gosec // fewer than jobs
	}
	i, is := s.known[d]
	if !is {
		i = uint32(len(s.kinds)) //nolint:gosec // fewer than jobs
		s.kinds, s.known[d] = append(s.kinds, d), i
	}
	return i
}

// fresh yields the jobs while they are remembered.
func (s *Seen) fresh(gateway string) iter.Seq[due] {
	return func(yield func(due) bool) {
		for _, b := range s.jobs {
			text := string(b.text)
			for _, j := range b.jobs {
				if s.clock.Now().Sub(s.since) > seenFor || !yield(s.due(j, text[j.from:], gateway)) {
					return
				}
			}
		}
	}
}

// due returns a job; text begins with its id.
func (s *Seen) due(j seen, text, gateway string) due {
	is, end := s.kinds[j.kind], j.id+j.money
	rec := job.Record{Job: job.Job{ID: text[:j.id], Gateway: gateway, Cost: is.cost}, State: job.Parked, Generation: is.generation,
		Reason: is.reason, ParkedAt: time.UnixMicro(j.parked).UTC(), Money: text[j.id:end]}
	return due{rec, is.key, is.why}
}
