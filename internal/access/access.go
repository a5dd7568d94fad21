// Package access is for step 5 of 8: it keeps the access token of a gateway (OAuth 2, client credentials). All processes share one, in Redis. One of them
// fetches the next one ahead of its end, and the others go on with the old one until then.
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

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
	"spillway/internal/seal"
)

const (
	// DefaultLife is how long a token lives whose life nobody says.
	DefaultLife = 5 * time.Minute
	// freshFor is how long a token counts as fetched just now, in place of one that was refused; freshWorked where calls with it have been taken.
	freshFor    = time.Minute
	freshWorked = 5 * time.Second
	// margin is how long before its end a token is used no more, so that it does not end on its way; at most a tenth of its life.
	margin = time.Second
	// firstBackoff and mostRefused bound the back-off after a no of the token endpoint, which only a person mends as a rule.
	firstBackoff = time.Second
	mostRefused  = time.Minute
	// look is how long to wait at most before it is looked whether another process has fetched a token.
	look = 100 * time.Millisecond
	// lateWithin is what is added to the time that a fetch may take before another process may fetch.
	lateWithin = 2 * time.Second
	// tellWithin bounds writing down what a fetch came to, also when the process is about to stop.
	tellWithin = 2 * time.Second
	// sayEvery is how often the log says the same failure at least.
	sayEvery = time.Minute
)

// Answer is what came of asking for a token.
type Answer struct {
	// Token is the token.
	Token string
	// Life is how long it lives from the moment at which it was asked for. Zero means DefaultLife.
	Life time.Duration
	// Refused says, with an error, that the endpoint has said no. It is asked again later and later, up to a minute; else up to Config.Backoff.
	Refused bool
	// Local says, with an error, that it is a fault of this machine: other processes are not kept from trying.
	Local bool
	// Wait is how long the endpoint asked, with an error, to be left alone. Zero means that it did not say.
	Wait time.Duration
}

// Config is what a keeper works with.
type Config struct {
	Gateway string
	Redis   redis.UniversalClient
	// Box seals the token in Redis as it seals payloads. A Box that seals opens none that is not sealed. Nil: it lies there in plain.
	Box *seal.Box
	// Credentials is a text of all that a token follows from. Processes with the same share their tokens. It is kept as a digest.
	Credentials string
	// Fetch asks for a token, within that time. Its errors hold no secret.
	Fetch func(ctx context.Context) (Answer, error)
	// Within is how long Fetch takes at most.
	Within time.Duration
	// Backoff is the longest time between two tries while the endpoint can't be reached or fails. Zero means 5 s.
	Backoff time.Duration
	Metrics *Metrics
	Log     *slog.Logger
}

// Token is an access token as this process has it.
type Token struct {
	// Text is the token itself: a secret.
	Text       string
	number     string
	renew, end time.Time
	worked     atomic.Bool
}

// Works says that the gateway took the token: its answer to a call was another one than 401.
func (t *Token) Works() {
	if !t.worked.Load() {
		t.worked.Store(true)
	}
}

// Keeper keeps the access token of one gateway in one process. A nil Keeper is that of a gateway without one: it is always ready. Safe for concurrent use.
type Keeper struct {
	cfg   Config
	keys  []string // of these credentials, and of the gateway
	owner string
	shut  error // the token can't be sealed here

	token  atomic.Pointer[Token]
	before atomic.Pointer[Token] // the one before it, which a call may still carry
	next   atomic.Int64          // when another token may be asked for ahead of the end of this one (ns)
	turn   chan struct{}         // holds whoever deals with Redis and the endpoint
	ctx    context.Context       //nolint:containedctx // the keeper's life
	end    context.CancelFunc    // ends it
	ahead  sync.WaitGroup        // what goes on in the background
	mu     sync.Mutex            // for what follows, and for what begins in the background
	said   string                // why there is no token, as the log said last
	saidAt time.Time
}

// New returns a keeper that asks for nothing before it is needed.
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

// Close ends what goes on in the background, and every Wait. A token that is known goes on being used.
func (k *Keeper) Close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	k.end()
	k.mu.Unlock()
	k.ahead.Wait()
}

// Current returns the token for a call now, from memory; nil where there is none. Ahead of its end it has another one fetched in the background.
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

// Ready says whether a call can be made now.
func (k *Keeper) Ready() bool { return k == nil || k.Current() != nil }

// Known returns the tokens that calls may carry now, to be looked for in answers.
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

// renew deals with the next token in the background, unless somebody does.
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

// pause is how long to wait at least before Redis is asked again ahead of the token's end.
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

// await is obtain for who waits: it takes turns with the others.
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

// Refused takes in that a call with the token was answered 401, and says whether it may go again, with another token. It may not where that one was fetched just now
// in place of one that was refused: then the gateway does not let us in.
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

// say writes into the log why there is no token, but not the same thing all the time.
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
