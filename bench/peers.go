package main

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// pipelining is how many goroutines share an AutoPipeliner: with 64 it does three quarters as much, and with more than 512 no more.
const pipelining = 512

// asynqClient enqueues with asynq's own client, task ids set, and returns jobs a second.
func (b *bulk) asynqClient(ctx context.Context, c redis.UniversalClient, goroutines int) (float64, error) {
	client := asynq.NewClientFromRedisClient(c)
	return b.together(goroutines, func(_, i int) error {
		_, err := client.EnqueueContext(ctx, asynq.NewTask("bench", payload(i)), asynq.Queue("bench"), asynq.TaskID(id(i)))
		return err
	})
}

// together has so many goroutines share a peer's jobs, and returns jobs a second.
func (b *bulk) together(goroutines int, do func(g, i int) error) (float64, error) {
	var wg sync.WaitGroup
	errs := make([]error, goroutines)
	start := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			for i := g; i < b.peers && errs[g] == nil; i += goroutines {
				errs[g] = do(g, i)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(b.peers) / took.Seconds(), nil
}

// autoPipelined has do use a client that puts the commands of many goroutines into pipelines, and answers each of them. It is a client of its
// own, so that nobody else's measurement meets it.
func (b *bulk) autoPipelined(do func(c redis.UniversalClient) (float64, error)) (float64, error) {
	options := *b.c.Options()
	c := redis.NewClient(&options)
	defer c.Close() // and its AutoPipeliner
	pipeliner, err := c.AutoPipeline()
	if err != nil {
		return 0, err
	}
	return do(pipeliner)
}

// asynqPipelined is the most that asynq's client can be had to do with an answer for each job.
func (b *bulk) asynqPipelined(ctx context.Context) (float64, error) {
	return b.autoPipelined(func(c redis.UniversalClient) (float64, error) { return b.asynqClient(ctx, c, pipelining) })
}

// oneByOne takes jobs in by the script that enqueue runs for 500 of them, run for one each over an AutoPipeliner: what would be if pipelines
// took the place of chunks. The message is about as long as asynq's.
func (b *bulk) oneByOne(ctx context.Context) (float64, error) {
	cfg := ledger.Config{Gateway: b.gateway, Keys: true, KeyLifetime: 24 * time.Hour, Attempts: 6, Dedupe: 24 * time.Hour,
		Bucket: bucket.TokenBucket{Limits: plenty, Burst: many},
		Encode: func(task string) ([]byte, error) { return []byte(strings.Repeat("m", 48) + task), nil }}
	lanes := make([]string, pipelining)
	for g := range lanes {
		lanes[g] = rand.Text()
	}
	return b.autoPipelined(func(c redis.UniversalClient) (float64, error) {
		books := ledger.New(c, cfg)
		return b.together(pipelining, func(g, i int) error {
			one := job.Newcomer{Job: job.Job{ID: id(i), Payload: payload(i), Batch: "november"}, Digest: id(i)}
			offer, err := books.Offer([]job.Newcomer{one})
			if err == nil {
				_, _, err = offer(ctx, job.Ticket{Sequence: lanes[g], Number: int64(i + 1)}, "park")
			}
			return err
		})
	})
}
