package dispatch

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// upsetRedis is a real Redis in virtual time that loses data, restarts and has its clock set, for a test inside a bubble of testing/synctest.
// Scripts get its clock, run id, uptime and number of subscribers. What they publish is delivered when they have run. It is a database of
// its own, so that many tests share one server.
type upsetRedis struct {
	t       testing.TB
	gateway string
	url     string                // of a database of its own: what is saved and deleted is found among its keys alone
	plain   redis.UniversalClient // of the server as it is
	mutant  mutant
	spread  func(channel string) // hands over what was published

	mu      sync.Mutex
	scripts map[string]script // by the hash under which the program knows them
	hits    map[int]bool      // edits of the mutant that were made
	loaded  map[string]bool   // hashes that this run of the server knows
	clock   clockRun
	down    bool
	runs    int
	upSince time.Time
	aof     bool
	listen  int // processes that listen
	saved   map[string][]string
}

// clockRun is the course of a clock since it was last set.
type clockRun struct {
	from  time.Time
	shows int64 // µs, at from
	rate  float64
}

func (c clockRun) at(now time.Time) int64 {
	return c.shows + int64(float64(now.Sub(c.from).Nanoseconds())/1000*c.rate)
}

// newUpsetRedis must be called inside the bubble, and testkit.Redis before it.
func newUpsetRedis(t testing.TB, gateway string, m mutant) *upsetRedis {
	now := time.Now()
	url, _ := testkit.Database(t)
	r := &upsetRedis{t: t, gateway: gateway, url: url, plain: unhurried(t, url).Client, mutant: m, scripts: map[string]script{}, hits: map[int]bool{},
		loaded: map[string]bool{}, clock: clockRun{now, now.UnixMicro(), 1}, upSince: now.Add(-10_000 * time.Second), runs: 1, aof: true,
		saved: map[string][]string{}}
	t.Cleanup(r.empty)
	return r
}

// now returns what its clock shows, in µs. The caller holds mu.
func (r *upsetRedis) now() int64 { return r.clock.at(time.Now()) }

// leap sets the clock ahead, or back.
func (r *upsetRedis) leap(ahead time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock = clockRun{time.Now(), r.now() + ahead.Microseconds(), r.clock.rate}
}

// run makes the clock run at that rate from now on.
func (r *upsetRedis) run(rate float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock = clockRun{time.Now(), r.now(), rate}
}

// upsetTasks is how many jobs wait. They are never pulled: there is always work.
const upsetTasks = 100

// fill makes jobs wait.
func (r *upsetRedis) fill() {
	ids := make([]any, upsetTasks)
	for i := range ids {
		ids[i] = job.TaskID(fmt.Sprintf("j%04d", i), 1)
	}
	r.must(r.plain.LPush(context.Background(), redisdb.NewKeys(r.gateway).Pending(), ids...).Err())
}

func (r *upsetRedis) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

const (
	emptyText = "for _, k in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', k) end return 1"
	saveText  = "local out = {} for _, k in ipairs(redis.call('KEYS', ARGV[1])) do out[#out + 1] = k out[#out + 1] = redis.call('DUMP', k) end return out"
	loadText  = "for i = 1, #ARGV, 2 do redis.call('RESTORE', ARGV[i], 0, ARGV[i + 1]) end return 1"
)

func (r *upsetRedis) pattern() string { return "*{" + r.gateway + "}*" }

func (r *upsetRedis) empty() {
	_ = r.plain.Eval(context.Background(), emptyText, nil, r.pattern()).Err()
}

// save saves the present data under a name.
func (r *upsetRedis) save(name string) {
	v, err := r.plain.Eval(context.Background(), saveText, nil, r.pattern()).StringSlice()
	r.must(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved[name] = v
}

// load restores the data that was saved under a name.
func (r *upsetRedis) load(name string) {
	r.empty()
	r.mu.Lock()
	v := r.saved[name]
	r.mu.Unlock()
	args := make([]any, len(v))
	for i := range v {
		args[i] = v[i]
	}
	r.must(r.plain.Eval(context.Background(), loadText, nil, args...).Err())
}

// stop makes it unreachable.
func (r *upsetRedis) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = true
}

// start makes it return as another run: a restart, or a fail-over to a server that was up all the time.
func (r *upsetRedis) start(uptime time.Duration, aof bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down, r.aof, r.upSince, r.loaded = false, aof, time.Now().Add(-uptime), map[string]bool{}
	r.runs++
}

// unmade returns the edits for which no script had the text.
func (r *upsetRedis) unmade() (texts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, e := range r.mutant {
		if !r.hits[i] {
			texts = append(texts, e.old)
		}
	}
	return texts
}

const upsetHead = `local upset = {}
for word in string.gmatch(table.remove(ARGV), '%S+') do upset[#upset + 1] = word end
local function upset_info(...)
  local text = redis.pcall('INFO', ...)
  text = string.gsub(text, 'run_id:%w+', 'run_id:' .. upset[2])
  text = string.gsub(text, 'uptime_in_seconds:%d+', 'uptime_in_seconds:' .. upset[3])
  text = string.gsub(text, 'total_net_repl_input_bytes:%d+', 'total_net_repl_input_bytes:' .. (tonumber(upset[3]) > 5000 and upset[2] ~= string.format('%040x', 1) and 1000 or 0))
  return (string.gsub(text, 'aof_enabled:%d', 'aof_enabled:' .. upset[4]))
end
local upset_said = {}
local function upset_publish(channel) upset_said[#upset_said + 1] = channel return 1 end
local function upset_main()
`

const upsetTail = "\nend\nlocal upset_answer = upset_main()\nreturn {table.concat(upset_said, ' '), upset_answer}"

var (
	upsetInfo      = regexp.MustCompile(`redis\.p?call\('INFO'(, )?`)
	upsetListeners = regexp.MustCompile(`redis\.p?call\('PUBSUB', 'NUMSUB', ([^)]+)\)`)
	upsetPublish   = regexp.MustCompile(`(redis\.)?p?call\('PUBLISH', `)
)

// learn loads into Redis what replaces a script.
func (r *upsetRedis) learn(ctx context.Context, text string) (script, error) {
	name := hash(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded[name] = true
	if s, ok := r.scripts[name]; ok {
		return s, nil
	}
	for i, e := range r.mutant {
		if strings.Contains(text, e.old) {
			text = strings.ReplaceAll(text, e.old, e.new)
			r.hits[i] = true
		}
	}
	text = strings.Replace(text, askTime, "local t = {0, upset[1]}", 1)
	text = upsetInfo.ReplaceAllString(text, "upset_info(")
	text = upsetListeners.ReplaceAllString(text, "{$1, upset[5]}")
	text = upsetHead + upsetPublish.ReplaceAllString(text, "upset_publish(") + upsetTail
	var s script
	var err error
	if s.hash, err = r.plain.ScriptLoad(ctx, text).Result(); err == nil {
		r.scripts[name] = s
	}
	return s, err
}

// instead returns the command that is sent in place of cmd. It returns an error if the program must send the script's text first.
func (r *upsetRedis) instead(ctx context.Context, cmd redis.Cmder) (redis.Cmder, error) {
	args := cmd.Args()
	var s script
	var err error
	switch name, _ := args[0].(string); strings.ToLower(name) {
	case "evalsha":
		r.mu.Lock()
		known, ok := r.scripts[args[1].(string)], r.loaded[args[1].(string)]
		r.mu.Unlock()
		if s = known; !ok {
			err = noScript{}
		}
	case "eval":
		s, err = r.learn(ctx, args[1].(string))
	case "script":
		_, err = r.learn(ctx, args[2].(string))
		return redis.NewCmd(ctx, "ping"), err
	default:
		return cmd, nil
	}
	r.mu.Lock()
	aof := map[bool]int{true: 1}[r.aof]
	told := fmt.Sprintf("%d %040x %d %d %d", r.now(), r.runs, int64(time.Since(r.upSince).Seconds()), aof, r.listen)
	r.mu.Unlock()
	return redis.NewCmd(ctx, slices.Concat([]any{"evalsha", s.hash}, args[2:], []any{told})...), err
}

// settle copies the answer to sent into the command that it replaced.
func (r *upsetRedis) settle(cmd, sent redis.Cmder) {
	if clock, ok := cmd.(*redis.TimeCmd); ok && clock.Err() == nil {
		r.mu.Lock()
		clock.SetVal(time.UnixMicro(r.now()))
		r.mu.Unlock()
	}
	if cmd == sent {
		return
	}
	from, _ := sent.(*redis.Cmd)
	if cmd.SetErr(sent.Err()); sent.Err() != nil {
		return
	}
	switch to := cmd.(type) {
	case *redis.StringCmd: // a script was loaded
		to.SetVal(hash(to.Args()[2].(string)))
	case interface{ SetVal(value any) }:
		v, _ := from.Slice()
		if len(v) < 2 {
			cmd.SetErr(redis.Nil)
			return
		}
		to.SetVal(v[1])
	}
}

func (r *upsetRedis) told(sent redis.Cmder) {
	from, ok := sent.(*redis.Cmd)
	if !ok {
		return
	}
	if v, err := from.Slice(); err == nil && len(v) > 0 {
		said, _ := v[0].(string)
		for channel := range strings.FieldsSeq(said) {
			r.spread(channel)
		}
	}
}

// away is the error of a connection that is refused, or was cut.
func away(why error) error { return &net.OpError{Op: "read", Net: "tcp", Err: why} }

type noAnswer struct{}

func (noAnswer) Error() string   { return "i/o timeout" }
func (noAnswer) Timeout() bool   { return true }
func (noAnswer) Temporary() bool { return true }

var errEnded = errors.New("the process has ended")

// answersWithin is how long a client of redisdb waits for an answer.
const answersWithin = 3 * time.Second

// wire is one process's connection to Redis, and the process's own troubles.
type wire struct {
	r    *upsetRedis
	far  time.Duration // round trip
	seed uint64
	db   *redisdb.DB

	mu                  sync.Mutex
	stands, cut, frozen time.Time // until when: the process, and its way
	ended               bool
	gone                chan struct{} // closes when it has ended
	holdsBack           time.Duration // the next scripts come so much later, when nobody waits any more; 0: none
}

// wire opens a process's connection to Redis.
func (r *upsetRedis) wire(far time.Duration, seed uint64) *wire {
	w := &wire{r: r, far: far, gone: make(chan struct{}), seed: seed}
	w.db = unhurried(r.t, r.url)
	w.db.Client.AddHook(w)
	return w
}

// upsetChance is a random value that is the same in each run of a seed: it depends on the time and the purpose, and not on the order of
// goroutines.
type upsetChance uint64

func chance(seed uint64, what string) upsetChance {
	h := fnv.New64a()
	fmt.Fprint(h, seed, what, time.Now().UnixNano())
	return upsetChance(h.Sum64())
}

// within returns a duration from zero to most.
func (c upsetChance) within(most time.Duration) time.Duration {
	return time.Duration(uint64(c)>>1) % most
}

// named returns the kind of a command.
func named(cmd redis.Cmder) string {
	if args := cmd.Args(); len(args) > 1 {
		return fmt.Sprint(args[0], args[1])
	}
	return cmd.Name()
}

func until(t time.Time) {
	if d := time.Until(t); d > 0 {
		<-time.After(d)
	}
}

// awake waits while the process stands still.
func (w *wire) awake() {
	for {
		w.mu.Lock()
		t := w.stands
		w.mu.Unlock()
		if !time.Now().Before(t) {
			return
		}
		until(t)
	}
}

func (w *wire) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.ended = true
		close(w.gone)
	}
}

// able reports whether the process works and reaches Redis.
func (w *wire) able() bool {
	w.r.mu.Lock()
	down := w.r.down
	w.r.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	return !down && !w.ended && !now.Before(w.stands) && !now.Before(w.cut) && !now.Before(w.frozen)
}

// travel is one direction of a round trip, which must end by the limit. If what was sent is stuck for longer, it returns until when.
func (w *wire) travel(what string, limit time.Time) (later time.Time, err error) {
	<-time.After(w.far/2 + chance(w.seed, what).within(w.far/4+997))
	for {
		w.mu.Lock()
		now := time.Now()
		ended, cut, frozen := w.ended, now.Before(w.cut), w.frozen
		w.mu.Unlock()
		switch {
		case ended:
			return later, errEnded
		case cut:
			return later, away(syscall.ECONNRESET)
		case !now.Before(frozen):
			return later, nil
		case frozen.After(limit):
			until(limit)
			return frozen, away(noAnswer{})
		}
		until(frozen)
	}
}

// pass runs a command in Redis and returns with its answer. late runs instead when the caller no longer waits for the answer.
func (w *wire) pass(ctx context.Context, what string, run func() error, late func(), answer func()) error {
	w.awake()
	limit := time.Now().Add(answersWithin)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
	}
	w.mu.Lock()
	back := w.holdsBack
	w.mu.Unlock()
	if back > 0 {
		go func() { <-time.After(back); _ = w.reached(late) }()
		until(limit)
		return away(noAnswer{})
	}
	later, err := w.travel(what, limit)
	if !later.IsZero() {
		go func() { until(later); _ = w.reached(late) }() // it stood in a buffer on the way
	}
	if err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	if _, err := w.travel(what, limit); err != nil {
		return err
	}
	w.awake()
	answer()
	return nil
}

// reached calls run unless Redis is down.
func (w *wire) reached(run func()) error {
	w.r.mu.Lock()
	down := w.r.down
	w.r.mu.Unlock()
	if down {
		return away(syscall.ECONNREFUSED)
	}
	run()
	return nil
}

// DialHook changes nothing.
func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook sends what replaces the command.
func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		var sent redis.Cmder
		var failed error
		away := context.WithoutCancel(ctx)
		late := func() {
			if after, err := w.r.instead(away, cmd); err == nil && after != cmd {
				_ = next(away, after)
				w.r.told(after)
			}
		}
		err := w.pass(ctx, named(cmd), func() error {
			return w.reached(func() {
				if sent, failed = w.r.instead(away, cmd); failed == nil {
					failed = next(away, sent)
					w.r.told(sent)
				}
			})
		}, late, func() {
			if w.r.settle(cmd, sent); failed != nil {
				cmd.SetErr(failed)
			}
		})
		if err != nil {
			cmd.SetErr(err)
		}
		return cmd.Err()
	}
}

// ProcessPipelineHook does the same for each command of a pipeline. If one of the scripts is not known, none runs.
func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		sent := make([]redis.Cmder, len(cmds))
		var failed error
		err := w.pass(ctx, "pipeline", func() error {
			return w.reached(func() {
				away := context.WithoutCancel(ctx)
				for i, cmd := range cmds {
					if sent[i], failed = w.r.instead(away, cmd); failed != nil {
						return
					}
				}
				failed = next(away, sent)
				for _, s := range sent {
					w.r.told(s)
				}
			})
		}, func() {}, func() {
			for i, cmd := range cmds {
				if _, unknown := failed.(noScript); unknown { //nolint:errorlint // ours, never wrapped
					cmd.SetErr(failed)
				} else {
					w.r.settle(cmd, sent[i])
				}
			}
		})
		if err == nil {
			return failed // each has its own error
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}
