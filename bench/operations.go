package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/redisdb"
)

// take asks an admission algorithm for n jobs of cost 1, as accept.lua does for a chunk.
const take = `
local now = now_us('0')
local b = bucket_load(KEYS[1], now, ARGV, 2)
local granted = 0
for _ = 1, tonumber(ARGV[1]) do
  if not bucket_take(b, 1) then break end
  granted = granted + 1
end
bucket_save(b)
return granted`

// plenty never refuses: what is measured is a grant.
var plenty = []bucket.Limit{{N: 1_000_000_000, Window: time.Second}}

func operations(c *redis.Client) ([]operation, error) {
	value := strings.Repeat("x", 20)
	limiter := redis_rate.NewLimiter(c)
	ops := []operation{
		{"SET (a plain one)", 1, func(ctx context.Context, i int) error { return c.Set(ctx, "bench:set", value, 0).Err() }},
		{"redis_rate, granted", 1, func(ctx context.Context, i int) error {
			_, err := limiter.Allow(ctx, "plenty", redis_rate.Limit{Rate: 1_000_000_000, Burst: 1_000_000_000, Period: time.Second})
			return err
		}},
		{"redis_rate, refused", 1, func(ctx context.Context, i int) error {
			_, err := limiter.Allow(ctx, "few", redis_rate.PerHour(1))
			return err
		}},
	}
	for _, a := range []struct {
		name   string
		limits []bucket.Limit
		burst  int64
		n      int
	}{
		{"granted", plenty, 1_000_000, 1},
		{"refused", []bucket.Limit{{N: 1, Window: time.Hour}}, 1, 1},
		{"three limits, granted", []bucket.Limit{plenty[0], {N: 1_000_000_000, Window: 2 * time.Second}, {N: 1_000_000_000, Window: 3 * time.Second}}, 1_000_000, 1},
		{"100 jobs in one call", plenty, 1_000_000, 100},
	} {
		t, err := bucket.NewAlgorithm(bucket.NameTokenBucket, a.limits, a.burst, 0)
		if err != nil {
			return nil, err
		}
		ops = append(ops, decision(c, bucket.NameTokenBucket+", "+a.name, t, a.n))
	}
	for _, name := range bucket.Algorithms() {
		t, err := bucket.NewAlgorithm(name, []bucket.Limit{{N: 100_000, Window: time.Second}}, 100_000, 60)
		if err != nil {
			return nil, err
		}
		ops = append(ops, decision(c, name+", 100000/s", t, 1))
	}
	return ops, nil
}

// decision is one call of an admission algorithm, for n jobs.
func decision(c *redis.Client, name string, t bucket.Algorithm, n int) operation {
	script := redisdb.NewScript(redisdb.NowLua, t.Lua(), take)
	args := append([]any{n}, t.Args()...)
	key := fmt.Sprintf("bench:{%s}", name)
	return operation{name, n, func(ctx context.Context, _ int) error {
		return script.Run(ctx, c, []string{key}, args...).Err()
	}}
}

// doorScript does for a chunk of jobs what admission and deduplication add to writing them down.
const doorScript = `
for i = 2, #KEYS do
  if redis.call('HGET', KEYS[i], 'd') then return -1 end
end` + take

// door returns how many µs a job takes in doorScript.
func (b *bulk) door(ctx context.Context) (float64, error) {
	t, err := bucket.NewAlgorithm(bucket.NameTokenBucket, plenty, 1_000_000, 0)
	if err != nil {
		return 0, err
	}
	script := redisdb.NewScript(redisdb.NowLua, t.Lua(), doorScript)
	keys := []string{"spillway:{bench}:admission"}
	for i := range pipelined {
		keys = append(keys, "spillway:{bench}:new:"+id(i))
	}
	args := append([]any{pipelined}, t.Args()...)
	const rounds = 100
	start := time.Now()
	for range rounds {
		if err := script.Run(ctx, b.c, keys, args...).Err(); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(start).Microseconds()) / (rounds * pipelined), nil
}
