package redisdb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Once remembers texts by keys that others make up, such as the answer of an act by its Idempotency-Key.
type Once struct{ c redis.UniversalClient }

// NewOnce returns what a Redis remembers.
func NewOnce(c redis.UniversalClient) Once { return Once{c} }

// onceKey is the key of Redis. The text of the key is others', however long, and may be a secret of theirs.
func onceKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "spillway:once:" + hex.EncodeToString(sum[:])
}

// Begin remembers a text for a while, unless one is remembered: that one is returned. Empty: none was.
func (o Once) Begin(ctx context.Context, key, text string, within time.Duration) (before string, err error) {
	for {
		set, err := o.c.SetNX(ctx, onceKey(key), text, within).Result()
		if err != nil || set {
			return "", err
		}
		before, err := o.c.Get(ctx, onceKey(key)).Result()
		if !errors.Is(err, redis.Nil) { // else it has run out between the two
			return before, err
		}
	}
}

// Renew has what is remembered last for a while from now.
func (o Once) Renew(ctx context.Context, key string, within time.Duration) error {
	return o.c.PExpire(ctx, onceKey(key), within).Err()
}

// Keep replaces what is remembered, for a while from now.
func (o Once) Keep(ctx context.Context, key, text string, within time.Duration) error {
	return o.c.Set(ctx, onceKey(key), text, within).Err()
}

// Kept returns what is remembered; empty: nothing is.
func (o Once) Kept(ctx context.Context, key string) (string, error) {
	text, err := o.c.Get(ctx, onceKey(key)).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return text, err
}

// Drop forgets it.
func (o Once) Drop(ctx context.Context, key string) error { return o.c.Del(ctx, onceKey(key)).Err() }
