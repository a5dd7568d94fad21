package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
