// Package provider is the strict provider: a payment gateway that counts every arrival in exact rolling windows and
// answers 429 to calls above the limit. It judges the limit in tests, in the demo and in trials of a configuration.
//
// It keeps the arrivals of the latest 1,000,000 to 2,000,000 calls (some 150 bytes each) and every key it has seen
// (some 200 bytes each) until POST /reset. Counts continue beyond that; windows are judged by the arrivals that are kept.
package provider

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Config says how the provider behaves. The zero Config has no limit, answers at once and charges every card.
// Everything except Seed, Amount and Currency can be changed while it runs (Set, or PATCH /settings).
type Config struct {
	// Limits apply together. None means no limit.
	Limits []Limit
	// Service is how long an answer takes.
	Service time.Duration
	// Decline is the share of new keys, 0 to 1, answered with 402.
	Decline float64
	// DeclineEvery answers each n-th new job id with 402. 0 = none.
	DeclineEvery int
	// FailEvery answers the first call of each n-th new job id with 500. 0 = none.
	FailEvery int
	// Fail is the share of calls, 0 to 1, answered with 500. It charges nothing, unless Charge500 says so.
	Fail float64
	// Hang is the share of calls, 0 to 1, that are charged and never answered. A repeat with the key is answered.
	Hang float64
	// Save500 saves an answer 500 under its key: each repeat gets it again. Without it the key stays unused.
	Save500 bool
	// Charge500 charges before an answer 500 by Fail, FailEvery or an incident. If the answer is not saved, a repeat charges again.
	Charge500 bool
	// NoMarks omits Idempotent-Replayed from repeated answers.
	NoMarks bool
	// Fates are the answers to particular jobs. The first one that fits a job counts. They come before all chances.
	Fates []Fate
	// Incident is trouble of the whole gateway. An answer 500 comes from the execution of the call, and Save500 and Charge500 apply to it.
	// Any other answer comes before the execution, and charges nothing.
	Incident Incident
	// Down answers every call with 503.
	Down bool
	// RetryAfter goes with 503, in whole seconds rounded up. 0 = no header.
	RetryAfter time.Duration
	// NoHint omits Retry-After from the 429s. Otherwise it is the exact wait, in whole seconds rounded up.
	NoHint bool
	// CountRefused makes calls refused with 429 use up the limit too, as some gateways do.
	CountRefused bool
	// LookupLag is how long a look-up (GET /lookups/ID) does not find a new charge.
	LookupLag time.Duration
	// LookupFail is the share of look-ups, 0 to 1, answered with 500. LookupHang is the share that is never answered.
	LookupFail, LookupHang float64
	// Amount and Currency name the fields of a request that GET /calls shows with a charge: whole minor units, and a currency. Dots lead into
	// nested fields. Empty: none is shown.
	Amount, Currency string
	// NoKeys ignores idempotency keys: every call charges.
	NoKeys bool
	// Seed makes the chances repeatable. 0 = random.
	Seed uint64
}

// Provider is the strict provider.
type Provider struct {
	began   time.Time
	mu      sync.Mutex
	cfg     Config
	rand    *rand.Rand
	log     callLog
	keys    map[string]*charge
	ids     map[string]*payer
	counts  Stats
	fates   map[string]*FateStats
	flying  int
	payers  int
	charges int
}

// New returns a provider.
func New(cfg Config) *Provider {
	seed := cfg.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	p := &Provider{began: time.Now(), cfg: cfg, rand: rand.New(rand.NewPCG(seed, seed))}
	p.Reset()
	return p
}

// reckoned returns a moment in ns since 1970, by a clock that nobody sets: the length of a window does not depend on changes of the date.
func (p *Provider) reckoned(at time.Time) int64 { return p.began.UnixNano() + int64(at.Sub(p.began)) }

// Set changes the behaviour from now on. Earlier arrivals stay counted. Seed has no effect any more.
func (p *Provider) Set(cfg Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg = cfg
}

// Config returns the present behaviour.
func (p *Provider) Config() Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cfg
}

// Reset forgets every arrival, key and count; the behaviour stays.
func (p *Provider) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = callLog{keep: maxCalls}
	p.keys, p.ids = map[string]*charge{}, map[string]*payer{}
	p.counts, p.fates = Stats{}, map[string]*FateStats{}
	p.charges, p.payers = 0, 0
}
