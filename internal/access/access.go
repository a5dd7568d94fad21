// Package access supports step 5 of 8: it manages the access token of a gateway (OAuth 2, client credentials). All
// processes share one token, in Redis. One of them fetches the next one before it expires, and the others keep
// using the old one until then.
//
//	call ── Current ── memory, while the token is fresh
//	           │ the token is about to end, or was refused
//	           ▼
//	        take.lua ── good: another process has fetched one
//	           ├─ busy, later: wait, or go on with the old one
//	           └─ fetch ── token endpoint ── granted.lua, failed.lua
package access

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
	"spillway/internal/seal"
)

const (
	// DefaultLife is the assumed lifetime of a token without one.
	DefaultLife = 5 * time.Minute
	// freshFor is how long a token counts as just fetched, as replacement of a refused one; freshWorked applies if
	// calls with it have been accepted.
	freshFor    = time.Minute
	freshWorked = 5 * time.Second
	// margin is how long before its expiry a token is no longer used, so that it does not expire in transit; at
	// most a tenth of its lifetime.
	margin = time.Second
	// firstBackoff and mostRefused bound the back-off after a refusal of the token endpoint, which usually needs an
	// operator.
	firstBackoff = time.Second
	mostRefused  = time.Minute
	// look is the longest time between checks whether another process has fetched a token.
	look = 100 * time.Millisecond
	// lateWithin is added to the time that a fetch may take before another process may fetch.
	lateWithin = 2 * time.Second
	// tellWithin bounds recording the result of a fetch, even while the process is stopping.
	tellWithin = 2 * time.Second
	// sayEvery is how often the same failure is logged.
	sayEvery = time.Minute
)

// Answer is the result of requesting a token.
type Answer struct {
	// Token is the token.
	Token string
	// Life is its lifetime from the time of the request. Zero means DefaultLife.
	Life time.Duration
	// Refused says, with an error, that the endpoint refused. The back-off then grows up to a minute, and otherwise
	// up to Config.Backoff.
	Refused bool
	// Local says, with an error, that it is a fault of this machine: other processes may try.
	Local bool
	// Wait is how long the endpoint asked to be left alone, with an error. Zero means that it did not say.
	Wait time.Duration
}

// Config configures a Keeper.
type Config struct {
	Gateway string
	Redis   redis.UniversalClient
	// Box seals the token in Redis like payloads. A Box that seals opens nothing unsealed. Nil: it is stored in
	// plain text.
	Box *seal.Box
	// Credentials is a text of everything that determines a token. Processes with the same text share their tokens.
	// It is stored as a digest.
	Credentials string
	// Fetch requests a token, within Within. Its errors contain no secrets.
	Fetch func(ctx context.Context) (Answer, error)
	// Within is the longest time that Fetch takes.
	Within time.Duration
	// Backoff is the longest time between two tries while the endpoint can't be reached or fails. Zero means 5 s.
	Backoff time.Duration
	Metrics *Metrics
	Log     *slog.Logger
}

// Token is an access token in this process.
type Token struct {
	// Text is the token itself: a secret.
	Text       string
	number     string
	renew, end time.Time
	worked     atomic.Bool
}

// Works records that the gateway accepted the token: it answered a call with something other than 401.
func (t *Token) Works() {
	if !t.worked.Load() {
		t.worked.Store(true)
	}
}

// Keeper manages the access token of one gateway in one process. A nil Keeper is for a gateway without tokens: it
// is always ready. A Keeper is safe for concurrent use.
type Keeper struct {
	cfg   Config
	keys  []string // of these credentials, and of the gateway
	owner string
	shut  error // the token can't be sealed here

	token  atomic.Pointer[Token]
	before atomic.Pointer[Token] // the previous one, which a call may still carry
	next   atomic.Int64          // when the next token may be requested before this one expires (ns)
	turn   chan struct{}         // held while using Redis and the endpoint
	ctx    context.Context       //nolint:containedctx // the keeper's life
	end    context.CancelFunc    // ends it
	ahead  sync.WaitGroup        // background work
	mu     sync.Mutex            // for what follows, and for starting background work
	said   string                // why there is no token, as last logged
	saidAt time.Time
}

// New returns a Keeper. It requests nothing before a token is needed.
func New(cfg Config) *Keeper {
	if cfg.Backoff <= 0 {
		cfg.Backoff = 5 * time.Second
	}
	k := &Keeper{cfg: cfg, owner: rand.Text(), turn: make(chan struct{}, 1)}
	k.ctx, k.end = context.WithCancel(context.Background())
	names := redisdb.NewKeys(cfg.Gateway)
	_, k.shut = cfg.Box.Seal(sealedAs, nil)
	k.keys = []string{names.AccessOf(digest(cfg.Box, cfg.Credentials)), names.Access()}
	cfg.Metrics.begin(cfg.Gateway)
	return k
}

// Close ends background work, and every Wait. A known token can still be used.
func (k *Keeper) Close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	k.end()
	k.mu.Unlock()
	k.ahead.Wait()
}

// Current returns the token for a call now, from memory; nil if there is none. Before it expires, another one is
// fetched in the background.
func (k *Keeper) Current() *Token {
	t, now := k.token.Load(), time.Now()
	if t == nil || !now.Before(t.end) {
		return nil
	}
	if !now.Before(t.renew) && now.UnixNano() >= k.next.Load() {
		k.renew()
	}
	return t
}

// Ready reports whether a call can be made now.
func (k *Keeper) Ready() bool { return k == nil || k.Current() != nil }

// Known returns the tokens that calls may carry now, to be masked in answers.
func (k *Keeper) Known() (texts []string) {
	if k == nil {
		return nil
	}
	for _, t := range []*Token{k.token.Load(), k.before.Load()} {
		if t != nil {
			texts = append(texts, t.Text)
		}
	}
	return texts
}

// renew gets the next token in the background, unless that is in progress.
func (k *Keeper) renew() {
	select {
	case k.turn <- struct{}{}:
	default:
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		<-k.turn
		return
	}
	k.ahead.Go(func() {
		defer func() { <-k.turn }()
		wait, err := k.obtain(k.ctx)
		if err != nil {
			k.say("access token not looked after, trying again", err)
		}
		k.next.Store(time.Now().Add(max(wait, k.pause())).UnixNano())
	})
}

// pause returns the shortest time until Redis is asked again before the token expires.
func (k *Keeper) pause() time.Duration {
	t := k.token.Load()
	if t == nil {
		return 0
	}
	return min(time.Until(t.end)/5, firstBackoff)
}

// Wait waits until there is a token, or the keeper is closed. Its error is that of ctx.
func (k *Keeper) Wait(ctx context.Context) error {
	for k != nil && !k.Ready() && k.ctx.Err() == nil && ctx.Err() == nil {
		wait, err := k.await(ctx)
		if err != nil {
			k.say("no access token, trying again", err)
		}
		if wait <= 0 {
			continue
		}
		select {
		case <-time.After(wait):
		case <-k.ctx.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// await is obtain for a waiting caller: it takes turns with others.
func (k *Keeper) await(ctx context.Context) (time.Duration, error) {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, nil
	}
	defer func() { <-k.turn }()
	if k.Ready() {
		return 0, nil
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(k.ctx, end)()
	return k.obtain(ctx)
}

// Refused records that a call with the token was answered 401, and reports whether it may be repeated with another
// token. It may not if that token was just fetched to replace a refused one: then the gateway denies access.
func (k *Keeper) Refused(ctx context.Context, t *Token) bool {
	fresh := freshFor
	if t.worked.Load() {
		fresh = freshWorked
	}
	goes, err := refusedScript.Run(ctx, k.cfg.Redis, k.keys[:1], 0, t.number, fresh.Microseconds()).Int64()
	if err != nil {
		k.cfg.Log.Warn("a refused access token was not dropped", "error", err)
		return false
	}
	if goes == 0 {
		return false
	}
	if k.token.CompareAndSwap(t, nil) {
		k.before.Store(t)
		k.cfg.Metrics.dropped(k.cfg.Gateway)
		k.cfg.Log.Info("the gateway refused the access token: dropped, jobs go again with another one")
	}
	return true
}

// say logs why there is no token, without repeating itself too often.
func (k *Keeper) say(what string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.said == err.Error() && time.Since(k.saidAt) < sayEvery {
		return
	}
	k.said, k.saidAt = err.Error(), time.Now()
	k.cfg.Log.Error(what, "error", err)
}

// The results of requesting a token.
const (
	granted = "granted"
	refused = "refused" // the endpoint refused
	failed  = "failed"  // it could not be reached, or failed
)

// Metrics are the metrics of all keepers of a process.
type Metrics struct{ requests, drops *prometheus.CounterVec }

// NewMetrics registers the metrics. With a nil reg it registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_token_requests_total",
			Help: "Requests of this process for access tokens (OAuth 2), by result."}, []string{"gateway", "result"}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_tokens_refused_total",
			Help: "Access tokens that this process dropped, since the gateway answered 401."}, []string{"gateway"}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.drops)
	}
	return m
}

// begin sets the metrics of a gateway to zero.
func (m *Metrics) begin(gateway string) {
	for _, result := range []string{granted, refused, failed} {
		m.requests.WithLabelValues(gateway, result)
	}
	m.drops.WithLabelValues(gateway)
}

// Forget removes the metrics of a gateway that is no longer served.
func (m *Metrics) Forget(gateway string) {
	m.requests.DeletePartialMatch(prometheus.Labels{"gateway": gateway})
	m.drops.DeletePartialMatch(prometheus.Labels{"gateway": gateway})
}

func (m *Metrics) asked(gateway string, got Answer, err error) {
	result := granted
	switch {
	case err != nil && got.Refused:
		result = refused
	case err != nil:
		result = failed
	}
	m.requests.WithLabelValues(gateway, result).Inc()
}

func (m *Metrics) dropped(gateway string) { m.drops.WithLabelValues(gateway).Inc() }
