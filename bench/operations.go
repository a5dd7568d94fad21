package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// take asks an admission algorithm for n jobs of cost 1, as accept.lua does for a chunk, and returns how many were granted.
const take = `
local b = bucket_load(KEYS[1], now_us('0'), ARGV, 2)
local n, granted = tonumber(ARGV[1]), 0
while granted < n and bucket_take(b, 1) do granted = granted + 1 end
bucket_save(b)
return granted`

// takeAndTell answers what redis_rate does: how many were granted, how many more would be, when there is room again, and when all of it.
const takeAndTell = `
local b = bucket_load(KEYS[1], now_us('0'), ARGV, 2)
local n, granted = tonumber(ARGV[1]), 0
while granted < n and bucket_take(b, 1) do granted = granted + 1 end
bucket_save(b)
return {granted, bucket_remaining(b)[1], granted < n and bucket_retry(b, 1) or -1, bucket_reset(b)}`

// plenty never refuses: what is measured is a grant, which is written down. A rate of 1,000,000,000/s would spare redis_rate its write:
// a billionth of a second is lost in its sum of seconds.
var plenty = []job.Limit{{N: many, Window: time.Second}}

const many = 1_000_000

// What the decisions of a bucket are held against.
const (
	rateGranted = "redis_rate, granted"
	rateRefused = "redis_rate, refused"
)

func operations(c *redis.Client) ([]operation, error) {
	value := strings.Repeat("x", 20)
	limiter := redis_rate.NewLimiter(c)
	ask := func(key string, limit redis_rate.Limit) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			_, err := limiter.Allow(ctx, key, limit)
			return err
		}
	}
	ops := []operation{
		{name: "SET (a plain one)", each: 1, do: func(ctx context.Context, _ int) error { return c.Set(ctx, "bench:set", value, 0).Err() }},
		{name: rateGranted, each: 1, do: ask("plenty", redis_rate.Limit{Rate: many, Burst: many, Period: time.Second})},
		{name: rateRefused, each: 1, do: ask("few", redis_rate.PerHour(1))},
	}
	few := []job.Limit{{N: 1, Window: time.Hour}}
	for _, a := range []struct {
		name, peer, script string
		limits             []job.Limit
		burst              int64
		n                  int
	}{
		{"granted", rateGranted, take, plenty, many, 1},
		{"granted, all told", rateGranted, takeAndTell, plenty, many, 1},
		{"refused", rateRefused, take, few, 1, 1},
		{"refused, all told", rateRefused, takeAndTell, few, 1, 1},
		{"three limits, granted", rateGranted, take, []job.Limit{plenty[0], {N: many, Window: 2 * time.Second}, {N: many, Window: 3 * time.Second}}, many, 1},
		{"100 jobs in one call", rateGranted, take, []job.Limit{{N: 100 * many, Window: time.Second}}, 100 * many, 100},
	} {
		t, err := bucket.NewAlgorithm(job.TokenBucket, a.limits, a.burst, 0)
		if err != nil {
			return nil, err
		}
		ops = append(ops, decision(c, job.TokenBucket+", "+a.name, a.peer, a.script, t, a.n))
	}
	for _, name := range job.Algorithms() {
		t, err := bucket.NewAlgorithm(name, []job.Limit{{N: 100_000, Window: time.Second}}, 100_000, 60)
		if err != nil {
			return nil, err
		}
		ops = append(ops, decision(c, name+", 100000/s", rateGranted, take, t, 1))
	}
	return ops, nil
}

// decision is one call of an admission algorithm, for n jobs.
func decision(c *redis.Client, name, peer, body string, t bucket.Algorithm, n int) operation {
	script := redisdb.NewScript(redisdb.NowLua, t.Lua(), body)
	args := append([]any{n}, t.Args()...)
	key := fmt.Sprintf("bench:{%s}", name)
	return operation{name: name, peer: peer, each: n, do: func(ctx context.Context, _ int) error {
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
	t, err := bucket.NewAlgorithm(job.TokenBucket, plenty, 1_000_000, 0)
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
