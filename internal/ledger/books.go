// Package ledger maintains the record of every job: the job itself, its state, its attempts and their outcomes.
// It serves steps 2 to 6 of 8 by running the scripts of internal/record, each of which is one change of state.
package ledger

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
)

// Bucket is the admission check that the ledger's scripts use: a Lua fragment that defines bucket_load,
// bucket_take, bucket_retry and bucket_save, and the arguments that bucket_load reads.
type Bucket interface {
	Lua() string
	Args() []any
}

// Config configures the Books of one gateway.
type Config struct {
	Gateway string
	// Bucket is the admission check. It may be nil for Books that admit nothing.
	Bucket Bucket
	// Unkept says why Bucket is nil: it is the error for jobs to be admitted. Nil means that no check was
	// requested.
	Unkept error
	// Current returns Bucket with the limits currently in force. Nil means that they never change.
	Current func(ctx context.Context) Bucket
	// Encode makes the queue's message for a task id, which it contains once. Messages for ids of equal length
	// differ only in the id. It may be nil for Books that never enqueue.
	Encode func(taskID string) ([]byte, error)
	// Registers makes the books register the gateway before they admit its first job, with one command for each
	// process.
	Registers bool
	// InOrder makes new jobs wait behind jobs parked as rejected.
	InOrder bool
	// First are the keys of the lines of jobs never called, the highest class first. Nil means that the gateway
	// has no classes.
	First []string
	// Lanes are the keys of the sets of lanes with jobs. Nil means that the gateway has neither lanes nor route
	// limits.
	Lanes []string
	// Passing are the classes whose jobs are admitted even if others have no room or wait behind parked ones,
	// as long as at most MostPassing of each wait. Nil means none.
	Passing     []string
	MostPassing int64
	// Parked bounds the parked jobs, over all reasons. At the bound, new jobs are not parked.
	Parked job.ParkedBound
	// Keys says that the gateway gets idempotency keys.
	Keys bool
	// Brake says when a batch stops itself.
	Brake job.Brake
	// Brakes bound the money that calls move.
	Brakes job.Brakes
	// Counted is what this process has seen of the money counted. Nil means that only these Books see it.
	Counted *Counted
	// Timeout is the part of an attempt's deadline that remains for its call if it is written at the last
	// moment.
	Timeout time.Duration
	// Approval says which batches need a second person's approval.
	Approval job.Approval
	// Feed says that the gateway has an outcome feed: every change that ends or parks a job is written to it.
	Feed bool
	// Sent is a digest of how a call is formed, without the payload. While an earlier call may have charged, a
	// call with another digest is not made. Empty means no such check.
	Sent string
	// OwnLanes says that jobs name their lanes themselves: the same id and payload in another lane is another
	// payment.
	OwnLanes bool
	// RouteSent is Sent for each of the gateway's routes, by name.
	RouteSent map[string]string
	// KeyLifetime is how long after a key's first call another call may use it.
	KeyLifetime time.Duration
	// Asks says when the first look-up is made for a job that may have been charged. The zero value means
	// never: such jobs are parked.
	Asks job.Asks
	// Attempts is how many attempts a job gets before it is parked as exhausted; at least 1.
	Attempts int
	// Money returns a payload's money in the form stored in the record (see job.MoneyField). Nil means that the
	// gateway's jobs have none.
	Money func(payload []byte) string
	// Box seals payloads at admission and opens them before a call. Nil means that they are stored in plain
	// text.
	Box *seal.Box
	// Dedupe is how long a job stays known after it is done or discarded; more than zero.
	Dedupe time.Duration
	// Age returns what was seen of the age of Redis's data. Nil means that it is not checked, for Books that
	// make no calls.
	Age func() Age
	// TaskEnded is called for each task that Done or Back removed from the queue with its attempt. Nil: not
	// called.
	TaskEnded func(taskID string)
	// Exhausted is called for each job that MoveDue has parked. Nil: not called.
	Exhausted func(id string)
	// Unrouted is told how many jobs MoveDue has left waiting because their route is still missing. Nil: not called.
	Unrouted func(n int64)
	// Unopened is told how many jobs MoveDue has left waiting because their payload still can't be opened. Nil: not
	// called.
	Unopened func(n int64)
	// SetAside is called for each job parked as unreadable because its record is damaged. Nil: not called.
	SetAside func(id string)
	// NowMicros replaces Redis's clock. For tests; nil means Redis's own.
	NowMicros redisdb.Clock
}

func (c Config) ended(taskID string, really bool) {
	if really && c.TaskEnded != nil {
		c.TaskEnded(taskID)
	}
}

// Books maintains the records of one gateway's jobs. It is safe for concurrent use.
type Books struct {
	c       redis.UniversalClient
	cfg     Config
	keys    redisdb.Keys
	accept  *redisdb.Script
	readmit *redisdb.Script
	watch   watch
	act     func() string   // see For; nil means none
	felt    func() []string // the KEYS of its pulse
	brakes  string          // in the form that brakes.lua reads
	// routeSent is Config.RouteSent in the form that open.lua reads, and passing is Config.Passing in the form
	// that accept.lua reads.
	routeSent, passing string
	sharing            string // in the form that share.lua reads
	registered         *atomic.Bool
	// openKeys and doneKeys are the KEYS of open.lua and done.lua that are the same for each job.
	openKeys, doneKeys []string
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
	b := &Books{c: c, cfg: cfg, brakes: cfg.Brakes.Setting(), keys: redisdb.NewKeys(cfg.Gateway), routeSent: routeSent(cfg.RouteSent), sharing: sharing(cfg),
		registered: &atomic.Bool{}}
	if len(cfg.Passing) > 0 {
		b.passing = fmt.Sprintf(" %d %s", cfg.MostPassing, strings.Join(cfg.Passing, " "))
	}
	if cfg.Bucket != nil {
		form := record.Form{Feed: cfg.Feed, Flows: b.HasFlows(), Approvals: len(cfg.Approval.BatchOver) > 0}
		b.accept, b.readmit = record.Accept(cfg.Bucket.Lua(), form), record.Readmit(cfg.Bucket.Lua(), form.Flows)
	}
	b.felt = sync.OnceValue(b.pulseKeys)
	k := b.keys
	b.openKeys = []string{k.Open(), k.Costs(), k.Counters(), k.Hold(), k.Alive()}
	b.doneKeys = []string{k.Open(), k.Rate(), k.Counters(), k.Retrying(), k.Scheduled(), k.Hold()}
	return b
}

// routeSent returns the digests of routes in the form that open.lua reads.
func routeSent(of map[string]string) (text string) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		text += " " + name + " " + of[name] + " "
	}
	return text
}

// sent returns the digest of how a call on that route is formed. It is empty if the gateway has no such route,
// or if the check is off.
func (b *Books) sent(route string) string {
	if route == "" {
		return b.cfg.Sent
	}
	return b.cfg.RouteSent[route]
}

var errNoCheck = errors.New("these books take nothing in: they have no admission check")

// bucketArgs returns the arguments of bucket_load, or why nothing can be admitted.
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

// Age is what was seen of the age of a gateway's data; internal/redisdb/alive.lua explains the fields. Data
// that is older, or has changed since, may be an old snapshot.
type Age struct {
	Version string // of the Age; empty if it is not checked
	Least   int64  // the sign of life, in µs, that the data must have at least
	Marks   string // confirmed restores, "from-until …" in µs: calls made in those spans are not in the records
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

//go:embed *.lua
var files embed.FS

func lua(name string) string { return record.Text(files, name) }

// queuedLua defines queued_of(prefix, class): how many tasks are in the line of a class, or, for the mark of gateways
// with lanes, in the lines of all lanes.
const queuedLua = `
local function queued_of(prefix, class)
  if class ~= '#lanes' then return redis.call('LLEN', prefix .. class) end
  return math.max(tonumber(redis.call('HGET', (string.gsub(prefix, 'first:$', 'lanes')), 'tasks')) or 0, 0)
end
`

// Scripts that only read, that claim ids, and that remove stale tasks from the queue. The scripts that change a
// record are in internal/record.
var (
	lookScript     = redisdb.NewScript(redisdb.NowLua, queuedLua, lua("look"))
	pulseScript    = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, queuedLua, lua("pulse"))
	waitingScript  = redisdb.NewScript(redisdb.NowLua, lua("waiting"))
	rejectedScript = redisdb.NewScript(lua("rejected"))
	astrayScript   = redisdb.NewScript(redisdb.NowLua, lua("astray"))
	claimScript    = redisdb.NewScript(redisdb.NowLua, lua("claim")).Replicated()
	unclaimScript  = redisdb.NewScript(lua("unclaim"))
	knownScript    = redisdb.NewScript(lua("known"))
	unclassScript  = redisdb.NewScript(lua("unclass"))
	unlaneScript   = redisdb.NewScript(redisdb.NowLua, lua("unlane"))
	flyingScript   = redisdb.NewScript(redisdb.NowLua, lua("flying"))
	turnsScript    = redisdb.NewScript(redisdb.NowLua, record.Lua, record.ShareLua, lua("turns"))
	reflowScript   = redisdb.NewScript(redisdb.NowLua, record.Lua, lua("reflow"))
	unfitScript    = redisdb.NewScript(redisdb.NowLua, record.Lua, lua("unfit"))
	papersScript   = redisdb.NewScript(redisdb.NowLua, lua("papers"))
)

// sharing returns the argument of share_open (share.lua); empty if the gateway has no flows.
func sharing(cfg Config) string {
	form := ""
	switch {
	case len(cfg.Lanes) > 0:
		form = "l"
	case len(cfg.First) > 0:
		form = "c"
	}
	if form == "" || len(cfg.Passing) == 0 {
		return form
	}
	return form + " " + strconv.FormatInt(cfg.MostPassing, 10) + " " + strings.Join(cfg.Passing, " ")
}

// For returns a copy of the books for one action of an operator. act returns the action's entry in the audit
// trail; what Readmit admits, or a batch action parks, is counted for it in the same script.
func (b *Books) For(act func() string) *Books {
	return &Books{c: b.c, cfg: b.cfg, keys: b.keys, accept: b.accept, readmit: b.readmit, act: act, felt: b.felt, routeSent: b.routeSent, passing: b.passing, sharing: b.sharing, registered: b.registered}
}

// On returns a copy of the books that uses another client of the same Redis.
func (b *Books) On(c redis.UniversalClient) *Books {
	return &Books{c: c, cfg: b.cfg, keys: b.keys, accept: b.accept, readmit: b.readmit, act: b.act, felt: b.felt, routeSent: b.routeSent, passing: b.passing, sharing: b.sharing, registered: b.registered}
}

func (b *Books) actPlace() string {
	if b.act == nil {
		return ""
	}
	return b.act()
}

// bound returns Parked in the form that accept.lua reads.
func (b *Books) bound() string {
	if !b.cfg.Parked.Bounds() {
		return ""
	}
	text := strconv.FormatInt(b.cfg.Parked.Jobs, 10) + " " + strconv.FormatInt(b.cfg.Parked.Bytes, 10)
	for _, r := range job.Reasons() {
		text += " " + string(r)
	}
	return text
}
