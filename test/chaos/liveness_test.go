package chaos

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// poisoned is the fate of a share of a gateway's jobs: they always fail.
func poisoned(share float64) []provider.Fate { return []provider.Fate{{Share: share, Status: 500}} }

// barOne makes the provider answer 403 to one job that waits to be called.
func (c *chaos) barOne(a *account) func(event) func() {
	return func(event) func() {
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		lines, err := redisdb.Lines(ctx, c.db, redisdb.NewKeys(a.name))
		task := ""
		for i := 0; i < len(lines) && err == nil && task == ""; i++ {
			task = c.db.LIndex(ctx, lines[i], -3).Val() // it is called soon
		}
		if task == "" {
			c.note("provider %s  no job waits to be barred: %v", a.name, err)
			return nil
		}
		was := a.Config()
		now := was
		now.Fates = append(slices.Clone(was.Fates), provider.Fate{ID: generation.ReplaceAllString(task, ""), Status: 403})
		a.Set(now)
		return func() { a.Set(was) }
	}
}

// pauseLane returns a lane of pauses of 5 to 60 s. Those of a short run are shorter.
func pauseLane(length time.Duration) lane {
	longest := min(max(length/6, 6*sec), 60*sec)
	return lane{"long pauses", max(length/8, 10*sec), []kind{{"pause", 1, 5 * sec, longest}}}
}

func (c *chaos) pauseActs() map[string]act {
	return map[string]act{"pause": func(e event) func() { return c.pause(c.gateways[e.pick%uint64(len(c.gateways))].name) }}
}

// pause pauses a gateway, and returns what resumes it.
func (c *chaos) pause(gateway string) (resume func()) {
	c.try(20*sec, "dispatcher", "pause", "-g", gateway, "--why", "chaos")
	return func() {
		for c.try(20*sec, "dispatcher", "resume", "-g", gateway).code != 0 && !c.finishing() {
		}
	}
}

// withoutDescriptors limits a dispatcher to the descriptors that it has, and cuts the lines to the gateways, so that it needs new ones. That happens to a process whose
// sockets use up the descriptors. undo restores the limit.
func (c *chaos) withoutDescriptors(r *run) (undo func()) {
	pid := r.cmd.Process.Pid
	was, err := descriptors(pid)
	if err == nil {
		err = limitDescriptors(pid, rlimit{used(pid), was.most})
	}
	if err != nil {
		c.note("dispatchers      its descriptors can't be limited: %v", err)
		return nil
	}
	for _, g := range c.gateways {
		g.line.Cut()
	}
	return func() {
		if err := limitDescriptors(pid, was); err != nil && !over(r) {
			c.t.Errorf("the limit of descriptors of a dispatcher can't be put back: %v", err)
		}
	}
}

func over(r *run) bool {
	return testkit.Within(5*sec, 10*ms, func() bool { // who was killed is so in a moment
		select {
		case <-r.over:
			return true
		default:
			return false
		}
	})
}

const (
	// left is how long the last faults have an effect: by the books the calls of killed dispatchers are under way for at most 7 s, and after
	// Redis has lost data, one window of the longest limit, 10 s, passes without calls.
	left = 15 * sec
	// again is circuit.max and a second.
	again = 6 * sec
	// least is the share of the calls that first calls have in one queue while jobs wait for theirs: half, less what is in hand.
	least = 0.4
	// starving is the share below which bad jobs starve others. They would leave a twentieth. Lanes with retries alone have turns as well, so it is less than least.
	starving = 0.2
	// busy is how many times as long as at the gateway's rate the last jobs may take. How fast the calls come depends on the machine, which the race detector and the
	// other tests keep busy; whose calls they are does not.
	busy = 4
)

// lively checks that jobs get their first call when all trouble is over, however many others keep failing. A last file of jobs goes in at
// each gateway. All of it must be called in the end, and while it waits, first calls must have their share of the calls.
func (c *chaos) lively() {
	over, deadline := time.Now(), map[*account]time.Time{}
	for _, name := range c.names() {
		a := c.accounts[name]
		ahead := max(len(a.jobs)-a.Stats().FirstCalls, 0)
		a.last = c.enqueue(a.gateway, name+"-last", 10*a.rate)
		a.jobs = append(a.jobs, a.last...)
		a.files, a.runs = a.files+1, a.runs+1
		within := left + again + busy*time.Duration(float64(ahead+len(a.last))/(least*float64(a.rate))*float64(sec))
		deadline[a] = time.Now().Add(within) // from here: a busy machine takes ten seconds and more to enqueue the files
		c.note("%s: %d jobs wait that were never called, %d more are in: the last is called within %v", name, ahead, len(a.last), within)
	}
	for _, name := range c.names() {
		a := c.accounts[name]
		testkit.Within(time.Until(deadline[a]), 200*ms, func() bool { return a.uncalled() == 0 })
		took := time.Since(over).Round(sec / 10)
		first, all := shareOf(a.Calls(), name+"-last-", over.Add(left+again))
		a.lively = fmt.Sprintf("the last %d jobs were all called within %v of the end of the trouble, allowed were %v; meanwhile %d of %d calls were first ones", len(a.last), took,
			deadline[a].Sub(over).Round(sec/10), first, all)
		if n := a.uncalled(); n > 0 {
			a.lively = fmt.Sprintf("%d of the last %d jobs are not called yet %v after the end of the trouble; meanwhile %d of %d calls were first ones", n, len(a.last), took, first, all)
			c.fault("%s: %s: good jobs wait for bad ones; status says %+v", name, a.lively, c.status()[name])
		} else if starved(first, all, a.rate) {
			c.fault("%s: %s: good jobs wait for bad ones", name, a.lively)
		}
		c.note("%s: %s", name, a.lively)
	}
}

// shareOf counts the calls from a moment until the first call of the last job with such a prefix, and those of them that were first calls. Look-ups are no calls.
func shareOf(calls []provider.CallLine, prefix string, from time.Time) (first, all int) {
	var firsts, sum int
	for _, call := range calls {
		if call.Look || time.UnixMicro(call.At).Before(from) {
			continue
		}
		sum++
		if !call.First {
			continue
		}
		if firsts++; strings.HasPrefix(jobOf(call), prefix) {
			first, all = firsts, sum
		}
	}
	return first, all
}

// starved says whether first calls had too small a share of the calls. What was in hand at both ends, and of the last jobs, is left out: a second's calls.
func starved(first, all, rate int) bool { return float64(first) < starving*float64(all-rate) }

// uncalled counts the jobs of the last file that the provider hasn't seen.
func (a *account) uncalled() int {
	called := 0
	for _, call := range a.Calls() {
		if call.First && strings.HasPrefix(jobOf(call), a.name+"-last-") {
			called++
		}
	}
	return len(a.last) - called
}

// jobOf is the job of a call: its key without the generation.
func jobOf(call provider.CallLine) string { return generation.ReplaceAllString(call.Key, "") }

func TestTheOracleOfShares(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	for name, tc := range map[string]struct {
		again   int // of ten calls, how many are no first ones
		starved bool
	}{
		"first calls alone": {0, false},
		"half of the calls": {5, false},
		"a fifth of them":   {8, false},
		"a tenth of them":   {9, true},
	} {
		var calls []provider.CallLine
		for i := range 400 {
			calls = append(calls, provider.CallLine{At: start.Add(time.Duration(i) * sec / 10).UnixMicro(), Key: fmt.Sprintf("g-last-%d", i), First: i%10 >= tc.again},
				provider.CallLine{At: start.UnixMicro(), Look: true})
		}
		calls = append(calls, provider.CallLine{At: start.Add(time.Hour).UnixMicro(), Key: "g-more1-1", First: true})
		first, all := shareOf(calls, "g-last-", start.Add(10*sec))
		if want := 30 * (10 - tc.again); first != want || all > 300 || all < 290 || starved(first, all, 10) != tc.starved {
			t.Errorf("%s: %d of %d calls are first ones, want %d of 300; starved: %v", name, first, all, want, starved(first, all, 10))
		}
	}
}

func TestTheOracleOfParkedJobs(t *testing.T) {
	t.Parallel()
	calls := func(statuses ...int) (list []provider.CallLine) {
		for _, status := range statuses {
			list = append(list, provider.CallLine{Key: "job", Status: status})
		}
		return list
	}
	const failed, barred = http.StatusInternalServerError, http.StatusForbidden
	for _, tc := range []struct {
		name          string
		reason        string
		attempts      string
		calls         []provider.CallLine
		keys, keyless bool // whether it is explained
	}{
		{"refused", "refused", "0", calls(http.StatusPaymentRequired), true, true},
		{"every attempt spent", "exhausted", "8", calls(failed, failed), true, false},
		{"attempts left", "exhausted", "7", calls(failed, failed), false, false},
		{"barred", "exhausted", "8", calls(barred, barred), true, true},
		{"one failure", "unknown_outcome", "1", calls(failed), false, true},
		{"a failure that is repeated", "unknown_outcome", "1", calls(failed, failed), true, true},
		{"two keys, a failure each", "unknown_outcome", "1", []provider.CallLine{{Key: "job", Status: failed}, {Key: "job~2", Status: failed}}, false, true},
		{"killed its worker", "unreadable", "1", nil, false, false},
	} {
		e := entry{id: "job", state: "parked", reason: tc.reason, attempts: tc.attempts, calls: tc.calls}
		if keys, keyless := (&account{}).expected(e), (&account{keyless: true}).expected(e); keys != tc.keys || keyless != tc.keyless {
			t.Errorf("%s: explained with keys %v, without %v; want %v and %v", tc.name, keys, keyless, tc.keys, tc.keyless)
		}
	}
}

func TestPausesAreAsLongAsTheRunAllows(t *testing.T) {
	t.Parallel()
	for length, most := range map[time.Duration]time.Duration{time.Minute: 10 * sec, 10 * time.Minute: time.Minute, time.Hour: time.Minute} {
		longest := time.Duration(0)
		for seed := range uint64(50) {
			for _, e := range schedule(seed, pauseLane(length), length) {
				longest = max(longest, e.lasts)
			}
		}
		if longest > most || longest < most*8/10 {
			t.Errorf("in %v the longest pause is %v, want up to %v", length, longest, most)
		}
	}
}

// newcomers enqueues a few more jobs now and then at each gateway where some still wait. If only bad jobs are left, they look like an outage until another job
// succeeds. Then the failures are known to be theirs, and they are parked in the end.
func (c *chaos) newcomers(stop <-chan struct{}) {
	for n := 1; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(8 * sec):
		}
		for _, name := range c.names() {
			if a := c.accounts[name]; c.waiting(a.gateway) > 0 {
				a.jobs = append(a.jobs, c.enqueue(a.gateway, fmt.Sprintf("%s-more%d", name, n), 10)...)
				a.files, a.runs = a.files+1, a.runs+1
			}
		}
	}
}
