package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Open connects to the configuration's Redis and waits up to wait for its first reply. Its errors have codes:
// usage for an unusable address, failed if Redis refuses the connection, unavailable if it is unreachable.
func Open(ctx context.Context, cfg *config.Config, wait time.Duration) (*redisdb.DB, error) {
	return OpenTelling(ctx, cfg, wait, nil)
}

// OpenTelling is Open. While it waits, it calls waiting, if not nil, with the reason.
func OpenTelling(ctx context.Context, cfg *config.Config, wait time.Duration, waiting func(error)) (*redisdb.DB, error) {
	secure, err := cfg.RedisTLS.Config()
	if err != nil {
		return nil, fmt.Errorf("redis.tls: %w", err)
	}
	db, err := redisdb.Open(ctx, cfg.Redis.Reveal(), redisdb.Options{Wait: wait, Waiting: waiting, WaitReplicas: cfg.WaitReplicas, TLS: secure})
	if at := cfg.RedisAt; errors.Is(err, redisdb.ErrURL) && at.Line > 0 {
		e, _ := errors.AsType[*job.Error](err)
		return nil, &job.Error{Code: e.Code, Hint: e.Hint, Message: (&config.Fault{Position: at, Field: "redis", Message: e.Message}).Error()}
	}
	return db, err
}

// Inspect refuses a Redis that would lose jobs, and returns other findings for the operator. It retries while
// Redis is unreachable.
func Inspect(ctx context.Context, db *redisdb.DB, patience time.Duration) (findings []redisdb.Finding, err error) {
	look := func(ctx context.Context) (err error) { findings, err = db.Check(ctx); return err }
	if err := redisdb.Patiently(ctx, patience, look); err != nil {
		return nil, err
	}
	for _, f := range findings {
		if f.Severity == redisdb.Refuse {
			return nil, &job.Error{Code: job.CodeFailed, Message: f.Message, Hint: f.Hint}
		}
	}
	return findings, nil
}

// Known refuses gateways whose data in Redis has a newer format than this program knows. It retries while Redis
// is unreachable.
func Known(ctx context.Context, db *redisdb.DB, gateways []config.Gateway, patience time.Duration) error {
	names := make([]string, len(gateways))
	for i, g := range gateways {
		names[i] = g.Name
	}
	return redisdb.Patiently(ctx, patience, func(ctx context.Context) error { return redisdb.CheckFormat(ctx, db.Client, names) })
}

// NoGateway returns the error for a gateway that is not configured.
func NoGateway(cfg *config.Config, name string) error {
	return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("no gateway %q in %s", name, cfg.File) + job.DidYouMean(name, "", cfg.Names()),
		Hint: "it has: " + someNames(cfg.Names())}
}

// mostNamed is the most gateways that a hint names.
const mostNamed = 20

// someNames lists the names of gateways for a hint, or the first few of many.
func someNames(names []string) string {
	if more := len(names) - mostNamed; more > 0 {
		return fmt.Sprintf("%s and %s more, which dispatcher gateway list names", strings.Join(names[:mostNamed], ", "), job.CountText(int64(more)))
	}
	return strings.Join(names, ", ")
}

// Keyless warns of gateways whose calls carry no idempotency key, or one that does not make a second call safe,
// with a Redis that may lose a call: the call would be repeated unnoticed. It returns nil if there are none, or
// if Redis loses nothing.
func Keyless(gateways []config.Gateway, h redisdb.Health, wait int) *redisdb.Finding {
	var names []string
	for _, g := range gateways {
		if g.Request.KeyCovers() == 0 {
			names = append(names, g.Name)
		}
	}
	what, hint := h.Forgets(wait)
	if len(names) == 0 || what == "" {
		return nil
	}
	return &redisdb.Finding{Severity: redisdb.Warn, Hint: hint,
		Message: fmt.Sprintf("calls of %s carry no idempotency key that covers a second call, and %s: a call that it forgets is made again, and may charge twice unnoticed",
			strings.Join(names, ", "), what)}
}

// LookForKeyless is Keyless for every server of db.
func LookForKeyless(ctx context.Context, db *redisdb.DB, gateways []config.Gateway, wait int, patience time.Duration) (found []redisdb.Finding, err error) {
	if db.Embedded {
		return nil, nil // at the start it reports that nothing is persisted
	}
	var all []redisdb.Health
	look := func(ctx context.Context) (err error) { all, err = db.Health(ctx, nil); return err }
	if err := redisdb.Patiently(ctx, patience, look); err != nil {
		return nil, err
	}
	for _, h := range all {
		if f := Keyless(gateways, h, wait); f != nil {
			return []redisdb.Finding{*f}, nil
		}
	}
	return nil, nil
}

// ballast is memory that is never touched, so the system never provides it. Go collects garbage when there is
// as much of it as of live memory, and a dispatcher has only a few MiB live: under load that would be fifteen
// collections a second, a fifth of the process's work. The ballast counts as live and allows ballastSize more
// garbage. A higher GOGC would instead multiply the memory that large payloads take.
var ballast = sync.OnceValue(func() []byte { return make([]byte, ballastSize) })

const ballastSize = 32 << 20 // bytes

// boundGarbage sets how much garbage is allowed, relative to live memory: as much as is live, and a smaller
// share above wholeGarbage gateways, since serving thousands takes 300 MB. $GOGC and $GOMEMLIMIT take
// precedence.
func boundGarbage(gateways int) {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(garbage(gateways))
	}
}

const (
	wholeGarbage = 1500 // gateways
	leastGarbage = 50   // percent
)

// garbage returns the allowed garbage, in percent of live memory.
func garbage(gateways int) int {
	return max(leastGarbage, 100*wholeGarbage/max(gateways, wholeGarbage))
}
