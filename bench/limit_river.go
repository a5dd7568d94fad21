package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// The ways of a River worker to keep the limit. River itself limits jobs under way, in its paid edition, and no rate.
const (
	kindSnooze    = "river-snooze"
	kindRiverWait = "river-wait"
)

func isRiver(kind string) bool { return kind == kindSnooze || kind == kindRiverWait }

// riverPeer is the PostgreSQL that River's contenders share.
type riverPeer struct{ url string }

// riverContenders snooze a job that redis_rate refuses, as River's documents have it for a job whose time has not come, and wait in the worker.
func riverContenders(ctx context.Context, _ *server) ([]contender, func(), error) {
	p, err := startPostgres(ctx)
	if err != nil {
		return nil, nil, err
	}
	r := riverPeer{p.url}
	all := []contender{
		{name: "River, redis_rate asked in the worker, snoozes", kind: kindSnooze},
		{name: "River, redis_rate tuned by hand: no burst, the worker waits", kind: kindRiverWait},
	}
	for i := range all {
		all[i].fill, all[i].worker, all[i].left = r.fill, r.worker, r.left
	}
	return all, p.stop, nil
}

// riverJob is a job's arguments.
type riverJob struct {
	ID      string `json:"id"`
	Payload string `json:"payload"`
}

// Kind is its name in the table of jobs.
func (riverJob) Kind() string { return "charge" }

// fill makes the table, an empty one, and inserts the jobs.
func (r riverPeer) fill(ctx context.Context, t *trial) error {
	pool, err := pgxpool.New(ctx, r.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "DROP SCHEMA public CASCADE; CREATE SCHEMA public"); err != nil {
		return err
	}
	driver := riverpgxv5.New(pool)
	tables, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := tables.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	client, err := river.NewClient(driver, &river.Config{})
	if err != nil {
		return err
	}
	jobs := make([]river.InsertManyParams, t.jobs)
	for i := range jobs {
		jobs[i].Args = riverJob{id(i), string(payload(i))}
	}
	for some := range slices.Chunk(jobs, 1000) {
		if _, err := client.InsertManyFast(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func (r riverPeer) worker(ctx context.Context, t *trial, _ int) (*exec.Cmd, error) {
	return t.self(ctx, t.kind, t.server.addr, t.url, t.workers, r.url)
}

// left counts the jobs that River has neither done nor given up.
func (r riverPeer) left(ctx context.Context, _ *trial) (n int, err error) {
	c, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return 0, err
	}
	defer c.Close(ctx)
	return n, c.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE finalized_at IS NULL").Scan(&n)
}

// riverWorker passes the limiter and makes the call.
type riverWorker struct {
	river.WorkerDefaults[riverJob]
	pass   func(context.Context) error
	client *http.Client
	url    string
}

// Work comes back to a job that was refused, here or by the provider, without using an attempt up.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverJob]) error {
	err := w.pass(ctx)
	if err == nil {
		err = charge(ctx, w.client, w.url, job.Args.ID, []byte(job.Args.Payload))
	}
	var limited *rateLimitError
	if errors.As(err, &limited) {
		return river.JobSnooze(limited.retryIn)
	}
	return err
}

// riverConfig is River's. A job of a process that died comes back after RescueStuckJobsAfter, which is an hour by default and must be longer than any job takes. The
// time between two fetches is as short as River allows, 100 ms by default.
func riverConfig(w *riverWorker) *river.Config {
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	return &river.Config{Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: limitAtOnce}},
		FetchCooldown: time.Millisecond, FetchPollInterval: 100 * time.Millisecond, JobTimeout: 10 * time.Second, RescueStuckJobsAfter: 15 * time.Second}
}

// serveRiver is a worker process.
func serveRiver(where string) error {
	var kind, addr, url, database string
	var workers int
	if _, err := fmt.Sscan(where, &kind, &addr, &url, &workers, &database); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	limiter := redis_rate.NewLimiter(redis.NewClient(&redis.Options{Addr: addr}))
	w := &riverWorker{client: callClient(), url: url, pass: func(ctx context.Context) error { return askOnce(ctx, limiter) }}
	if kind == kindRiverWait {
		w.pass = func(ctx context.Context) error { return askUntilGranted(ctx, limiter) }
	}
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := river.NewClient(riverpgxv5.New(pool), riverConfig(w))
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	return client.StopAndCancel(ending)
}
