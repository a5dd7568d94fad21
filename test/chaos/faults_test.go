package chaos

import (
	"strings"
	"sync"
	"syscall"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// post is a place for a dispatcher. When the dispatcher dies, another one is started there.
type post struct {
	c      *chaos
	mu     sync.Mutex // held while somebody does something to it
	r      *run
	wanted bool
}

func (c *chaos) newPost() *post {
	p := &post{c: c}
	p.fill()
	go p.watch()
	return p
}

func (p *post) fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.r, p.wanted = p.c.dispatcher(), true
}

// leave ends the dispatcher of the post. The post stays empty until fill.
func (p *post) leave(end func(*run)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = false
	end(p.r)
}

func (p *post) running() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r
}

// vacant reports whether r, which has ended, should still run.
func (p *post) vacant(r *run) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wanted && p.r == r
}

// watch starts a dispatcher again that ended by itself. Only exit code 5 is allowed: Redis was away at its start.
func (p *post) watch() {
	for range time.Tick(100 * ms) {
		r := p.running()
		select {
		case <-p.c.ended:
			return
		case <-r.over:
		default:
			continue
		}
		if !p.vacant(r) {
			continue
		}
		code := r.cmd.ProcessState.ExitCode()
		p.c.note("dispatchers      one ended by itself with exit code %d, %s", code, r.log)
		if code != 5 {
			p.c.fault("a dispatcher ended by itself with exit code %d; its log ends:\n%s", code, tail(r.text()))
		}
		p.fill()
	}
}

func (c *chaos) dispatcherActs() map[string]act {
	one := func(e event) *post { return c.posts[e.pick%uint64(len(c.posts))] }
	return map[string]act{
		"kill -9, another one starts after": func(e event) func() {
			one(e).leave((*run).kill)
			return one(e).fill
		},
		"stalled": func(e event) func() {
			r := one(e).running()
			r.signal(syscall.SIGSTOP)
			return func() { r.signal(syscall.SIGCONT) }
		},
		"out of descriptors": func(e event) func() {
			return c.withoutDescriptors(one(e).running())
		},
		"stopped and started again": func(e event) func() {
			one(e).leave(c.stop)
			one(e).fill()
			return nil
		},
	}
}

// stopWithin is how long a dispatcher may take to stop on a busy machine: its calls under way (2 s), and the bounded work after them.
const stopWithin = 60 * sec

// stop stops a dispatcher as an operator would. It must end with exit code 0, whatever the state of Redis.
func (c *chaos) stop(r *run) {
	r.signal(syscall.SIGTERM)
	select {
	case <-r.over:
		text := r.text()
		gaveUp := r.cmd.ProcessState.ExitCode() == 5 && !strings.Contains(text, "msg=serving")                        // just before: Redis was away at its start
		if code := r.cmd.ProcessState.ExitCode(); code != 0 && !gaveUp && time.Since(r.begun) > 5*sec && text != "" { // younger, or silent so far, it may not have heard of signals yet
			c.fault("a dispatcher that was told to stop ended with exit code %d; its log ends:\n%s", code, tail(text))
		}
	case <-time.After(stopWithin):
		c.fault("a dispatcher did not stop within %v; its log ends:\n%s", stopWithin, tail(r.text()))
		r.kill()
	}
}

func (c *chaos) redisActs() map[string]act {
	return map[string]act{
		"kill -9, back after": func(event) func() { c.redis.Kill(); return c.redis.Restart },
		"stalled":             func(event) func() { c.redis.Pause(); return c.redis.Continue },
		"scripts flushed":     func(event) func() { c.db.ScriptFlush(c.t.Context()); return nil },
	}
}

func lineActs(l *testkit.Line, least, most time.Duration) map[string]act {
	return map[string]act{
		"slow":      func(e event) func() { l.Delay(e.between(least, most)); return func() { l.Delay(0) } },
		"cut":       func(event) func() { l.Cut(); return nil },
		"half open": func(event) func() { l.Freeze(); return l.Thaw },
		"answers lost": func(event) func() {
			l.LoseAnswers(true)
			return func() { l.LoseAnswers(false) }
		},
		"refused": func(event) func() { l.Refuse(); return l.Admit },
	}
}

func (c *chaos) providerActs(a *account) map[string]act {
	set := func(f func(*provider.Config)) func(event) func() {
		return func(event) func() {
			was := a.Config()
			now := was
			f(&now)
			a.Set(now)
			return func() { a.Set(was) }
		}
	}
	lower := set(func(p *provider.Config) {
		fewer := ofAll(p.Limits)
		for i := range fewer {
			fewer[i].N /= 5
		}
		p.Limits = fewer
	})
	return map[string]act{
		"down, 503":         set(func(p *provider.Config) { p.Down = true }),
		"fails, 500":        set(func(p *provider.Config) { p.Fail = 0.3 }),
		"saves 500s":        set(func(p *provider.Config) { p.Fail, p.Save500 = 0.3, true }),
		"bars a job, 403":   c.barOne(a),
		"charges and hangs": set(func(p *provider.Config) { p.Hang = 0.2 }),
		"declines, 402":     set(func(p *provider.Config) { p.Decline = 0.2 }),
		"allows a fifth, 429": func(e event) func() {
			from, undo := time.Now(), lower(e)
			return func() {
				undo()
				c.mu.Lock()
				defer c.mu.Unlock()
				a.lowered = append(a.lowered, span{from, time.Now()})
			}
		},
	}
}
