package dispatch

import (
	"bufio"
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"spillway/internal/bucket"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if testkit.Race {
		t.Skip("virtual time is five times as slow under the race detector, which has died of it: make test runs it")
	}
	synctest.Test(t, f)
}

// virtual is a real Redis in virtual time, for a test inside a bubble of testing/synctest, where the clock advances when there is nothing else to do.
// Each script gets the bubble's time in place of Redis's own. Messages that scripts publish are delivered here, because a subscriber that waits for a real
// connection would keep the clock from advancing.
type virtual struct {
	t       testing.TB
	gateway string
	db      *redisdb.DB
	plain   redis.UniversalClient // sees scripts as they are
	mutant  mutant

	mu      sync.Mutex
	scripts map[string]script // by the hash under which the program knows them
	hits    map[int]bool      // edits of the mutant that were made
	heard   []chan<- [2]string
}

// script is what Redis gets in place of a script of the program.
type script struct {
	hash  string
	timed bool // its last argument is the time
	news  bool // it may publish
}

// mutant is a program with a fault: edits of its scripts.
type mutant []edit

// edit replaces a text in each script that contains it.
type edit struct{ old, new string }

// newVirtual must be called inside the bubble, and testkit.Redis before it.
func newVirtual(t testing.TB, gateway string, m mutant) *virtual {
	t.Helper()
	v := &virtual{t: t, gateway: gateway, mutant: m, plain: unhurried(t, testkit.Redis(t)).Client, scripts: map[string]script{}, hits: map[int]bool{}, db: unhurried(t, testkit.Redis(t))}
	v.db.Client.AddHook(v)
	v.db.Client = listening{v.db.Client, v}
	return v
}

// unhurried opens the Redis at url for a bubble. The time-outs of its connections are real, while the bubble's clock stands still, so they must be longer than any
// stall of a busy machine.
func unhurried(t testing.TB, url string) *redisdb.DB {
	t.Helper()
	// Nobody may wait for a connection: the driver's timers for that are shared with other bubbles.
	db, err := redisdb.Open(t.Context(), url, redisdb.Options{PoolSize: 4096, DialTimeout: time.Hour, ReadTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// untimed returns ctx without its deadline, which would apply in real time, too. A context that has ended stays so.
func untimed(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// unmade returns the edits for which no script had the text.
func (v *virtual) unmade() (texts []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, e := range v.mutant {
		if !v.hits[i] {
			texts = append(texts, e.old)
		}
	}
	return texts
}

var (
	askTime  = "local t = redis.call('TIME')"
	publish  = regexp.MustCompile(`'PUBLISH', ([^,]+), ([^)]+)\)`)
	channels = []string{redisdb.Wake, bucket.HoldChannel}
)

// learn loads into Redis what replaces a script.
func (v *virtual) learn(ctx context.Context, text string) (script, error) {
	name := hash(text)
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, ok := v.scripts[name]; ok {
		return s, nil
	}
	var s script
	for i, e := range v.mutant {
		if strings.Contains(text, e.old) {
			text = strings.ReplaceAll(text, e.old, e.new)
			v.hits[i] = true
		}
	}
	if s.timed = strings.Contains(text, askTime); s.timed {
		text = "local virtual_now, virtual_listeners = string.match(table.remove(ARGV), '^(%d+) (%d+)$')\n" + strings.Replace(text, askTime, "local t = {0, tonumber(virtual_now)}", 1)
		text = upsetListeners.ReplaceAllString(text, "{$1, virtual_listeners}") // subscribers that Redis knows are those of other tests
	}
	if s.news = publish.MatchString(text); s.news {
		text = publish.ReplaceAllString(text, "'RPUSH', 'published:' .. $1 .. ':' .. $2, $2)")
	}
	var err error
	if s.hash, err = v.plain.ScriptLoad(ctx, text).Result(); err == nil {
		v.scripts[name] = s
	}
	return s, err
}

func hash(text string) string {
	h := sha1.Sum([]byte(text)) //nolint:gosec // Redis's name of a script
	return hex.EncodeToString(h[:])
}

// noScript is the error of a Redis that does not know a script by its hash.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script" }
func (noScript) RedisError()   {}

// instead returns the command that is sent in place of cmd, and the script that it runs. It returns an error if the program must send the script's text
// first.
func (v *virtual) instead(ctx context.Context, cmd redis.Cmder) (redis.Cmder, script, error) {
	args := cmd.Args()
	var s script
	var err error
	switch name, _ := args[0].(string); strings.ToLower(name) {
	case "evalsha":
		v.mu.Lock()
		known, ok := v.scripts[args[1].(string)]
		v.mu.Unlock()
		if s = known; !ok {
			err = noScript{}
		}
	case "eval":
		s, err = v.learn(ctx, args[1].(string))
	case "script":
		_, err = v.learn(ctx, args[2].(string))
		return redis.NewCmd(ctx, "ping"), s, err
	case "time":
		return redis.NewCmd(ctx, "ping"), s, nil
	default:
		return cmd, s, nil
	}
	all := append([]any{"evalsha", s.hash}, args[2:]...)
	if s.timed {
		v.mu.Lock()
		all = append(all, fmt.Sprintf("%d %d", time.Now().UnixMicro(), len(v.heard)))
		v.mu.Unlock()
	}
	return redis.NewCmd(ctx, all...), s, err
}

// DialHook changes nothing.
func (v *virtual) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook sends what replaces the command.
func (v *virtual) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx = untimed(ctx)
		sent, s, err := v.instead(ctx, cmd)
		if err != nil {
			cmd.SetErr(err)
			return err
		}
		err = next(ctx, sent)
		answer(cmd, sent)
		v.spread(ctx, s.news)
		return err
	}
}

// ProcessPipelineHook does the same for each command of a pipeline. If one of the scripts is not known, none runs.
func (v *virtual) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx = untimed(ctx)
		sent, news := make([]redis.Cmder, len(cmds)), false
		for i, cmd := range cmds {
			var s script
			var err error
			if sent[i], s, err = v.instead(ctx, cmd); err != nil {
				for _, cmd := range cmds {
					cmd.SetErr(err)
				}
				return err
			}
			news = news || s.news
		}
		err := next(ctx, sent)
		for i, cmd := range cmds {
			answer(cmd, sent[i])
		}
		v.spread(ctx, news)
		return err
	}
}

// answer copies the answer to sent into the command that it replaced.
func answer(cmd, sent redis.Cmder) {
	if cmd == sent {
		return
	}
	from, _ := sent.(*redis.Cmd)
	switch to := cmd.(type) {
	case interface{ SetVal(value any) }:
		to.SetVal(from.Val())
	case *redis.StringCmd: // a script was loaded
		to.SetVal(hash(to.Args()[2].(string)))
	case *redis.TimeCmd:
		to.SetVal(time.Now())
	}
	cmd.SetErr(sent.Err())
}

// spread delivers published messages to all subscribers.
func (v *virtual) spread(ctx context.Context, news bool) {
	if !news {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	said := make([]*redis.StringSliceCmd, len(channels))
	_, _ = v.plain.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, channel := range channels {
			said[i] = p.LPopCount(ctx, "published:"+channel+":"+v.gateway, 1000)
		}
		return nil
	})
	for i, channel := range channels {
		if len(said[i].Val()) == 0 {
			continue
		}
		for _, to := range v.heard {
			to <- [2]string{channel, v.gateway}
		}
	}
}

// listening is a client whose subscriptions get what virtual spreads.
type listening struct {
	redis.UniversalClient
	v *virtual
}

// Subscribe returns a subscription over a pipe.
func (l listening) Subscribe(ctx context.Context, names ...string) *redis.PubSub {
	c := redis.NewClient(&redis.Options{Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return l.v.line(), nil }})
	l.v.t.Cleanup(func() { _ = c.Close() })
	return c.Subscribe(ctx, names...)
}

// line returns a connection to a Redis that knows only SUBSCRIBE and PING.
func (v *virtual) line() net.Conn {
	near, far := net.Pipe()
	said := make(chan string, 10_000)
	news := make(chan [2]string, 10_000)
	v.mu.Lock()
	v.heard = append(v.heard, news)
	v.mu.Unlock()
	over := make(chan struct{})
	go func() {
		defer close(over)
		serveSubscriber(bufio.NewReader(far), said)
	}()
	go func() {
		defer far.Close()
		for {
			var text string
			select {
			case text = <-said:
			case n := <-news:
				text = bulk("message", n[0], n[1])
			case <-over:
				return
			}
			if _, err := io.WriteString(far, text); err != nil {
				return
			}
		}
	}()
	return near
}

func bulk(parts ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(parts))
	for _, p := range parts {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(p), p)
	}
	return text
}

// serveSubscriber answers commands until the connection ends.
func serveSubscriber(from *bufio.Reader, say chan<- string) {
	for {
		args, err := command(from)
		if err != nil {
			return
		}
		switch strings.ToLower(args[0]) {
		case "subscribe":
			for i, name := range args[1:] {
				say <- fmt.Sprintf("*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(name), name, i+1)
			}
		case "ping":
			say <- bulk("pong", "")
		default:
			say <- "-ERR unknown command\r\n"
		}
	}
}

func command(from *bufio.Reader) (args []string, err error) {
	n, err := length(from)
	for range n {
		var size int
		if size, err = length(from); err != nil {
			break
		}
		text := make([]byte, size+2)
		if _, err = io.ReadFull(from, text); err != nil {
			break
		}
		args = append(args, string(text[:size]))
	}
	return args, err
}

// length reads the number on a line of the protocol, behind its mark.
func length(from *bufio.Reader) (int, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
