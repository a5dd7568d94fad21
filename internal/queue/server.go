// Package queue is step 3 of 8, and the only package that sees asynq: it encodes tasks, runs one asynq server for each
// gateway that has jobs, and holds its dequeue back until a slot is near. What becomes of a job is never asynq's to decide: the
// handler answers "done" when it has written down what is to happen next, and fails only when it could not.
package queue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// ServerConfig says how one gateway's jobs are pulled.
type ServerConfig struct {
	Gateway string
	// Concurrency is how many jobs this process may have in hand at once; at least 1.
	Concurrency int
	Gate        Gate
	// Handle deals with one delivery and returns when what is to happen next is written down; with an error it is not,
	// and the task must come again. Its context never ends, also when asynq gives the task up: only the call's own time-out ends a call.
	Handle func(ctx context.Context, d job.Delivery) error
	// Grace is how long Stop waits for jobs in hand; those still open then go back to the head of the queue.
	Grace time.Duration
	// Hands are those that the server shares with others. Whoever made them closes them, once the servers have stopped. Nil: it has its own.
	Hands *Hands
	Log   *slog.Logger
}

// Server pulls one gateway's jobs and hands them to the worker.
type Server struct {
	cfg    ServerConfig
	client *gatedClient
	halt   context.CancelFunc
	hands  *Hands

	mu      sync.Mutex
	srv     *asynq.Server   // nil while there is nothing to do
	session context.Context // ends with that
	leave   context.CancelFunc
	halted  bool
}

// NewServer returns a server that pulls nothing until Start.
func NewServer(c redis.UniversalClient, cfg ServerConfig) *Server {
	stop, halt := context.WithCancel(context.Background())
	h := cfg.Hands
	if h == nil {
		h = NewHands()
	}
	s := &Server{cfg: cfg, halt: halt, hands: h}
	s.client = &gatedClient{UniversalClient: c, gate: cfg.Gate, keys: newTaskKeys(cfg.Gateway), stop: stop, most: cfg.Concurrency, hands: h,
		longest: longestWait, restAfter: restAfter, news: make(chan struct{}, 1), ready: make(map[string]job.Slot)}
	s.Order(nil)
	return s
}

func (s *Server) newAsynq() *asynq.Server {
	return asynq.NewServerFromRedisClient(s.client, asynq.Config{
		Concurrency:              s.cfg.Concurrency,
		Queues:                   map[string]int{s.cfg.Gateway: 1},
		TaskCheckInterval:        time.Millisecond, // the gate waits instead
		DelayedTaskCheckInterval: 100 * 365 * 24 * time.Hour,
		JanitorInterval:          24 * time.Hour, // nothing of ours is ever "completed" in asynq's sense
		ShutdownTimeout:          s.cfg.Grace,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
		IsFailure:                func(error) bool { return false },
		Logger:                   asynqLog{s.cfg.Log.With("gateway", s.cfg.Gateway)},
		LogLevel:                 asynq.WarnLevel,
	})
}

// Start begins to pull jobs, as soon as there are any.
func (s *Server) Start() { s.client.begin(s.rouse, s.rest) }

// Halt pulls no more jobs; those in hand go on.
func (s *Server) Halt() {
	s.halt()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halted = true
	if s.srv != nil {
		s.srv.Stop()
	}
}

// Stop halts, waits for the jobs in hand up to the grace time, and gives unused slots and jobs back.
func (s *Server) Stop(ctx context.Context) {
	s.Halt()
	if s.srv != nil { // nobody changes it any more
		s.srv.Shutdown()
	}
	if s.cfg.Hands == nil {
		s.hands.Close()
	}
	s.client.finish(ctx)
}

func (s *Server) deliver(ctx context.Context, task *asynq.Task) error {
	s.client.has(1)
	defer s.client.has(-1)
	taskID, _ := asynq.GetTaskID(ctx)
	d := job.Delivery{TaskID: taskID, Slot: s.client.take(taskID)}
	var ours bool
	d.JobID, d.Generation, ours = job.ParseTaskID(taskID)
	if !ours || task.Type() != taskType {
		d.JobID, d.Generation, d.Foreign, d.Payload = "", 0, true, task.Payload()
	}
	var err error
	s.hands.do(func() { err = s.cfg.Handle(context.Background(), d) })
	return err
}

// asynqLog hands asynq's messages to slog.
type asynqLog struct{ l *slog.Logger }

func text(args []any) string { return strings.TrimSpace(fmt.Sprint(args...)) }

func (a asynqLog) Debug(args ...any) { a.l.Debug("queue", "says", text(args)) }
func (a asynqLog) Info(args ...any)  { a.l.Info("queue", "says", text(args)) }
func (a asynqLog) Warn(args ...any)  { a.l.Warn("queue", "says", text(args)) }
func (a asynqLog) Error(args ...any) {
	if says := text(args); !isUnheard(says) {
		a.l.Error("queue", "says", says)
	}
}
func (a asynqLog) Fatal(args ...any) { a.l.Error("queue", "says", text(args)) }
