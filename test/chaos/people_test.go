package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// change is one change of a gateway's limits by a person.
type change struct {
	begin, end time.Time
	limits     []provider.Limit
	sure       bool // the command said that it was done
}

// peopleActs returns what operators do meanwhile, over the same bad line to Redis that the dispatchers have.
func (c *chaos) peopleActs() map[string]act {
	return map[string]act{
		"limit set": func(e event) func() {
			a := c.accounts[[]string{"stripe", "adyen"}[e.pick%2]]
			lower := a.rate/3 + int(e.pick/2)%(a.rate*2/3)
			c.limit(a, []provider.Limit{{N: lower, Window: sec}})
			return func() { c.limit(a, nil) }
		},
		"pause": func(e event) func() {
			return c.pause(c.gateways[e.pick%uint64(len(c.gateways))].name)
		},
		"replay": func(e event) func() {
			reason := []string{"refused", "exhausted", "rejected"}[e.pick%3]
			// Broken off in the middle, it must lose and double nothing.
			c.try(e.between(200*ms, 8*sec), "dispatcher", "dlq", "replay", "--reason", reason, "--yes", "--why", "chaos")
			return nil
		},
		"resolve": func(event) func() { c.resolve(); return nil },
		"ask":     func(event) func() { c.ask(); return nil },
		"discard": func(e event) func() {
			c.try(20*sec, "dispatcher", "dlq", "discard", "--reason", "refused", "--limit", fmt.Sprint(1+e.pick%3), "--yes", "--why", "chaos")
			return nil
		},
	}
}

func (c *chaos) finishing() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// endWithin is how long an interrupted program may take to end on a busy machine.
const endWithin = 30 * sec

// try runs a program. If it takes longer than within, it is interrupted, and killed endWithin later. Redis may be away. Every other
// failure is a fault of the program.
func (c *chaos) try(within time.Duration, name string, args ...string) result {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	cmd := c.program(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = endWithin
	r := c.finish(cmd, nil)
	if state := cmd.ProcessState; state != nil && state.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		c.fault("%v did not end within %v of its interrupt\n%s", cmd.Args, endWithin, r.err)
	}
	what := name + " " + strings.Join(args, " ")
	c.note("people           %.100s: exit code %d %.200s", what, r.code, strings.TrimSpace(r.out))
	return r
}

// finish runs a program to its end and checks how it ended. It calls then when the program has started.
func (c *chaos) finish(cmd *exec.Cmd, then func()) result {
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := testkit.Start(cmd); err != nil {
		c.fault("%v: %v", cmd.Args, err)
		return result{code: -1}
	}
	if then != nil {
		then()
	}
	err := cmd.Wait()
	r := result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
	movedOn := slices.Contains(cmd.Args, "park") && (r.code == 1 || r.code == 4) // a job that was pending when somebody looked
	if broken(r.err) != "" || !slices.Contains([]int{0, 5, 130, -1}, r.code) && !movedOn {
		c.fault("%v: exit code %d, %v\n%s", cmd.Args, r.code, err, r.err)
	}
	return r
}

// limit sets a gateway's limits live, or resets them to those of the file, and records what may be in force from now on.
func (c *chaos) limit(a *account, to []provider.Limit, flags ...string) {
	ch := change{begin: time.Now(), limits: to}
	args := append([]string{"limit", "reset", "-g", a.name}, flags...)
	if to != nil {
		args = append([]string{"limit", "set", "-g", a.name, to[0].String()}, flags...)
	} else {
		ch.limits = a.limits[0].limits
	}
	c.mu.Lock()
	a.limits = append(a.limits, ch)
	at := len(a.limits) - 1
	c.mu.Unlock()
	r := c.try(20*sec, "dispatcher", args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	a.limits[at].end, a.limits[at].sure = time.Now(), r.code == 0
}

// lookedUp is how long a job must have been parked before a person looks it up: by then its call has arrived or is lost.
const lookedUp = 6 * sec

// resolve plays a person who looks up at the provider what became of calls, and resolves the jobs.
func (c *chaos) resolve() {
	list := c.try(20*sec, "dispatcher", "dlq", "list", "--reason", "unknown_outcome", "-o", "json")
	if list.code != 0 {
		return
	}
	var done, not []string
	seen := map[string]map[string][]provider.CallLine{}
	for line := range strings.Lines(list.out) {
		var j struct {
			ID, Gateway string
			ParkedAt    time.Time `json:"parked_at"`
		}
		if err := json.Unmarshal([]byte(line), &j); err != nil {
			c.fault("dlq list -o json says %q: %v", line, err)
			return
		}
		if time.Since(j.ParkedAt) < lookedUp || len(done)+len(not) >= 40 {
			continue
		}
		if seen[j.Gateway] == nil {
			seen[j.Gateway] = c.accounts[j.Gateway].seen()
		}
		if (entry{calls: seen[j.Gateway][j.ID]}).charges(true) > 0 {
			done = append(done, "--id", j.ID)
			continue
		}
		not = append(not, "--id", j.ID)
		c.accounts[j.Gateway].settled[j.ID]++
	}
	verb := []string{"dlq", "resolve", "--yes", "--why", "looked up"}
	if len(done) > 0 {
		c.try(20*sec, "dispatcher", append(append(verb, "--done"), done...)...)
	}
	if len(not) > 0 {
		c.try(20*sec, "dispatcher", append(append(verb, "--not-done"), not...)...)
	}
}

// ask parks a few jobs about which the gateway is being asked, and then has the gateway asked about all parked ones.
func (c *chaos) ask() {
	for _, a := range c.accounts {
		if !a.asked {
			continue
		}
		ids, err := c.db.ZRange(context.Background(), redisdb.NewKeys(a.name).Asking(), 0, 1).Result()
		if err != nil {
			return // Redis is away
		}
		for _, id := range ids {
			c.try(20*sec, "dispatcher", "park", id, "-g", a.name, "--yes", "--why", "chaos")
		}
		c.try(20*sec, "dispatcher", askAbout(a.name)...)
	}
}

func askAbout(gateway string) []string {
	return []string{"dlq", "resolve", "--ask", "-g", gateway, "--reason", "unknown_outcome", "--yes", "--why", "chaos"}
}

// producerLane returns a lane of billing files. All of them together are a third of what the limits allow.
func producerLane(a *account) lane {
	return lane{"producer of " + a.name, 4 * sec, []kind{{"a billing file", 1, 1 * sec, 3 * sec}}}
}

// produce enqueues billing files, each again until it is in.
func (c *chaos) produce(a *account, events []event) {
	for _, e := range events {
		<-time.After(time.Until(c.begun.Add(e.at)))
		list := ids(fmt.Sprintf("%s-%03d", a.name, a.files+1), a.rate/2+int(e.pick%uint64(3*a.rate)))
		a.files++
		c.deliver(a, list, e)
		a.jobs = append(a.jobs, list...)
	}
}

// summary is what enqueue prints.
type summary struct{ Read, Enqueued, Parked, Duplicate, Invalid, Failed int }

// deliver runs enqueue on a file until it says that all of it is in. Some of the first runs are killed, some are interrupted.
func (c *chaos) deliver(a *account, list []string, e event) {
	text, taken := lines(list), 0
	if e.pick>>4&3 == 0 {
		text = strings.ReplaceAll(text, `,"payload"`, strings.Repeat(" ", 25<<10)+`,"payload"`) // enqueue sends 80 such lines at a time
	}
	for try := 0; ; try++ {
		end, after := syscall.Signal(0), time.Duration(0)
		if bits := e.pick >> (8 + 4*try) & 15; try < 3 && bits < 9 && !c.finishing() {
			end, after = []syscall.Signal{syscall.SIGKILL, syscall.SIGINT}[bits%2], time.Duration(bits+1)*e.lasts/10
		}
		r := c.enqueueSlowly(a, text, e.lasts, end, after)
		a.runs++
		var s summary
		if r.out != "" {
			if err := json.Unmarshal([]byte(r.out), &s); err != nil {
				c.fault("enqueue -o json says %q: %v", r.out, err)
			}
		}
		c.note("producer         %s, %d jobs, try %d: exit code %d %+v", list[0], len(list), try+1, r.code, s)
		taken += s.Enqueued + s.Parked
		if s.Read != s.Enqueued+s.Parked+s.Duplicate+s.Invalid+s.Failed || s.Invalid > 0 || r.code == 0 && s.Failed > 0 {
			c.fault("enqueue ended with exit code %d and a report that can't be right: %+v", r.code, s)
		}
		if r.code == 0 {
			if s.Read != len(list) || taken > len(list) {
				c.fault("enqueue of %d jobs read %d, and all its runs together took in %d", len(list), s.Read, taken)
			}
			return
		}
		if time.Since(c.begun) > c.length+3*time.Minute {
			c.fault("a billing file of %d jobs did not get in, the last exit code was %d\n%s", len(list), r.code, r.err)
			return
		}
		<-time.After(100 * ms)
	}
}

// enqueueSlowly feeds enqueue over a while. If end is not 0, it sends that signal after a time.
func (c *chaos) enqueueSlowly(a *account, text string, over time.Duration, end syscall.Signal, after time.Duration) result {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := c.program(ctx, "enqueue", "-g", a.name, "-f", "-", "-o", "json", "-q")
	in, err := cmd.StdinPipe()
	if err != nil {
		c.fault("%v", err)
		return result{code: -1}
	}
	begun := time.Now()
	go func() {
		defer in.Close()
		for i := range 20 {
			part := text[len(text)*i/20 : len(text)*(i+1)/20]
			if _, err := io.WriteString(in, part); err != nil {
				return // it has ended
			}
			<-time.After(time.Until(begun.Add(over * time.Duration(i+1) / 20)))
		}
	}()
	return c.finish(cmd, func() {
		if end != 0 {
			time.AfterFunc(after, func() { _ = cmd.Process.Signal(end) })
		}
	})
}

// explained reports whether an answer 429 came while the provider allowed less than its contract. On a busy machine the provider may read a call a
// while after the kernel has stamped it. The stamps decide whether a window held too many calls.
func (a *account) explained(call provider.CallLine) bool {
	at := time.UnixMicro(call.At)
	return call.Status != http.StatusTooManyRequests || slices.ContainsFunc(a.lowered, func(s span) bool {
		return at.After(s.from.Add(-10*sec)) && at.Before(s.to)
	})
}
