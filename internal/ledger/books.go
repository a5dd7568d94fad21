// Package ledger keeps the record of every job: what it is, where it stands, the attempts made and their outcomes.
// It serves steps 2 to 6 of 8: it runs the scripts of internal/record, of which each is one change of state.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
)

// Bucket is the admission check as the ledger's scripts use it: a Lua fragment that defines bucket_load,
// bucket_take, bucket_retry and bucket_save, and the arguments that bucket_load reads.
type Bucket interface {
	Lua() string
	Args() []any
}

// Config says whose books these are and by which rules they are kept.
type Config struct {
	Gateway string
	// Bucket is the admission check. Books that only look and finish may leave it nil: they take nothing in.
	Bucket Bucket
	// Unkept is why Bucket is nil: the error of what is to come in. Nil means that nobody asked for a check.
	Unkept error
	// Current returns Bucket with the limits that hold at the moment. Nil: they don't change.
	Current func(ctx context.Context) Bucket
	// Encode makes the queue's message for a task id, which is in it once; messages of ids of the same length differ in nothing else. Books that
	// never queue anything may leave it nil.
	Encode func(taskID string) ([]byte, error)
	// InOrder makes newcomers wait behind jobs that are parked as rejected.
	InOrder bool
	// First are the keys of the lines of jobs that were never called, the highest class first. Nil: the gateway has no classes.
	First []string
	// Lanes are the sets in which lanes with jobs stand. Nil: the gateway has neither lanes nor routes with limits.
	Lanes []string
	// Passing are the classes whose jobs go in also where others have no room or wait behind parked ones, while at most MostPassing of each wait. Nil: none do.
	Passing     []string
	MostPassing int64
	// Parked is what there may be parked, of all reasons together, for a newcomer to be parked.
	Parked job.ParkedBound
	// Keys says that the gateway is sent an idempotency key.
	Keys bool
	// Brake says when a batch stops itself.
	Brake job.Brake
	// Brakes bound the money that calls take.
	Brakes job.Brakes
	// Counted is what this process has seen of the money that is counted. Nil: what it sees is of these books alone.
	Counted *Counted
	// Timeout is how much of an attempt's deadline is left for its call when that is written at the latest.
	Timeout time.Duration
	// Approval says which batches wait until a second person has approved them.
	Approval job.Approval
	// Feed says that the gateway has an outcome feed: each change that ends or parks a job is told there.
	Feed bool
	// Sent is a digest of what a call is made of but for the payload: while an earlier call may have charged, no other is made. Empty: that is not watched.
	Sent string
	// OwnLanes says that jobs name their lanes themselves: the same id and payload with another lane is another payment.
	OwnLanes bool
	// RouteSent is Sent of each of the gateway's routes, by their names.
	RouteSent map[string]string
	// KeyLifetime is how long after a key's first call another one may begin with it.
	KeyLifetime time.Duration
	// Asks says when the gateway is first asked after a job that may have been charged. The zero value: never, such jobs are parked.
	Asks job.Asks
	// Attempts is how many attempts a job has before it is parked as exhausted; at least 1.
	Attempts int
	// Money reads a payload's money as a record has it (job.Money.Field). Nil: the gateway's jobs have none.
	Money func(payload []byte) string
	// Box seals payloads on their way in and opens them before a call. Nil: they are stored as they are.
	Box *seal.Box
	// Dedupe is how long a job is known after it is done or discarded; more than zero.
	Dedupe time.Duration
	// Age returns what was seen of the data's age. Books that call nobody may leave it nil: then it is not watched.
	Age func() Age
	// TaskEnded hears of each task that Done or Back has taken out of the queue's hands together with its attempt. Nil: nobody hears.
	TaskEnded func(taskID string)
	// Exhausted hears of each job that MoveDue has parked. Nil: nobody hears.
	Exhausted func(id string)
	// SetAside hears of each job that was parked as unreadable, its record being damaged. Nil: nobody hears.
	SetAside func(id string)
	// NowMicros replaces Redis's clock. For tests; nil means Redis's own.
	NowMicros redisdb.Clock
}

func (c Config) ended(taskID string, really bool) {
	if really && c.TaskEnded != nil {
		c.TaskEnded(taskID)
	}
}

// Books are the records of one gateway's jobs. Safe for concurrent use.
type Books struct {
	c       redis.UniversalClient
	cfg     Config
	keys    redisdb.Keys
	accept  *redisdb.Script
	readmit *redisdb.Script
	watch   watch
	act     func() string   // see For; nil means none
	felt    func() []string // the keys of its pulse
	brakes  string          // as brakes.lua reads them
	// routeSent is Config.RouteSent as open.lua reads it, and passing is Config.Passing as accept.lua does.
	routeSent, passing string
	sharing            string // as share.lua reads it
}

// New returns the books of a gateway.
func New(c redis.UniversalClient, cfg Config) *Books {
	if cfg.Age == nil {
		cfg.Age = func() Age { return Age{} }
	}
	if cfg.Money == nil {
		cfg.Money = func([]byte) string { return "" }
	}
	if cfg.Counted == nil {
		cfg.Counted = &Counted{}
	}
	b := &Books{c: c, cfg: cfg, brakes: cfg.Brakes.Setting(), keys: redisdb.NewKeys(cfg.Gateway), routeSent: routeSent(cfg.RouteSent), sharing: sharing(cfg)}
	if len(cfg.Passing) > 0 {
		b.passing = fmt.Sprintf(" %d %s", cfg.MostPassing, strings.Join(cfg.Passing, " "))
	}
	if cfg.Bucket != nil {
		b.accept, b.readmit = record.Accept(cfg.Bucket.Lua(), cfg.Feed, b.HasFlows()), record.Readmit(cfg.Bucket.Lua(), b.HasFlows())
	}
	b.felt = sync.OnceValue(b.pulseKeys)
	return b
}

// routeSent are the digests of routes as open.lua reads them.
func routeSent(of map[string]string) (text string) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		text += " " + name + " " + of[name] + " "
	}
	return text
}

// sent is the digest of what a call of a job of that route is made of; empty where the gateway has no such route, or nobody watches it.
func (b *Books) sent(route string) string {
	if route == "" {
		return b.cfg.Sent
	}
	return b.cfg.RouteSent[route]
}

var errNoCheck = errors.New("these books take nothing in: they have no admission check")

// bucketArgs returns what bucket_load reads, or why nothing can come in.
func (b *Books) bucketArgs(ctx context.Context) ([]any, error) {
	switch {
	case b.cfg.Unkept != nil:
		return nil, b.cfg.Unkept
	case b.cfg.Bucket == nil:
		return nil, errNoCheck
	case b.cfg.Current == nil:
		return b.cfg.Bucket.Args(), nil
	}
	return b.cfg.Current(ctx).Args(), nil
}

// Age is what was seen of the age of a gateway's data; its fields are in internal/redisdb/alive.lua. Data that is older, or has changed since,
// may be an old snapshot.
type Age struct {
	Version string // of what is known of it; empty if nobody watches it
	Least   int64  // the least sign of life that it must have, in µs
	Marks   string // confirmed restores, "from-until …" in µs: calls made in between are not in these books
}

// Task returns the id, key and message of a job's task for one generation.
func (b *Books) Task(id string, generation int64) (taskID, key string, msg []byte, err error) {
	taskID = job.TaskID(id, generation)
	msg, err = b.cfg.Encode(taskID)
	if err != nil {
		return "", "", nil, fmt.Errorf("encode the task of job %s: %w", id, err)
	}
	return taskID, b.keys.Task(taskID), msg, nil
}
