package redisdb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Once stores texts under keys chosen by callers, such as the result of an act under its Idempotency-Key.
type Once struct{ c redis.UniversalClient }

// NewOnce returns a Once that stores texts in Redis.
func NewOnce(c redis.UniversalClient) Once { return Once{c} }

// onceKey returns the Redis key. The caller's key may be long, and may be secret.
func onceKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "spillway:once:" + hex.EncodeToString(sum[:])
}

// Begin stores a text for a while, unless there is one already, which it returns. Empty: there was none.
func (o Once) Begin(ctx context.Context, key, text string, within time.Duration) (before string, err error) {
	for {
		set, err := o.c.SetNX(ctx, onceKey(key), text, within).Result()
		if err != nil || set {
			return "", err
		}
		before, err := o.c.Get(ctx, onceKey(key)).Result()
		if !errors.Is(err, redis.Nil) { // otherwise it has expired between the two
			return before, err
		}
	}
}

// Renew extends the life of a stored text.
func (o Once) Renew(ctx context.Context, key string, within time.Duration) error {
	return o.c.PExpire(ctx, onceKey(key), within).Err()
}

// Keep replaces a stored text, and extends its life.
func (o Once) Keep(ctx context.Context, key, text string, within time.Duration) error {
	return o.c.Set(ctx, onceKey(key), text, within).Err()
}

// Kept returns the stored text; empty if there is none.
func (o Once) Kept(ctx context.Context, key string) (string, error) {
	text, err := o.c.Get(ctx, onceKey(key)).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return text, err
}

// Drop deletes it.
func (o Once) Drop(ctx context.Context, key string) error { return o.c.Del(ctx, onceKey(key)).Err() }
