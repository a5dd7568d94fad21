package dispatch

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// slowly delays what goes to Redis, and what comes back.
func slowly(there, back func(commands int)) testkit.Hook {
	return testkit.Around(func(cmds []redis.Cmder, send func() error) error {
		there(len(cmds))
		defer back(len(cmds))
		return send()
	})
}

// oneProcessor is a machine that all processes of a trial share: each of their commands to Redis takes its processor for a while, one after the other.
func oneProcessor(takes time.Duration) testkit.Hook {
	turn := make(chan struct{}, 1)
	return slowly(func(commands int) {
		turn <- struct{}{}
		<-time.After(time.Duration(commands) * takes)
		<-turn
	}, func(int) {})
}

// farAway is a Redis whose answers take so long.
func farAway(away time.Duration) testkit.Hook {
	half := func(int) { <-time.After(away / 2) }
	return slowly(half, half)
}

// slowCalls counts the calls in 30 s at a limit of 100/s, ten seconds after the beginning.
func slowCalls(t *testing.T, processes int, how func() testkit.Hook) (n int) {
	t.Helper()
	const begin, end = 10 * time.Second, 40 * time.Second
	play(t, processes, 100, "", nil, func(r *trial) {
		r.good(4100)
		r.v.db.Client.AddHook(how())
		r.till(end)
	}, func(t *testing.T, r *trial, _ map[string]job.Reason) {
		for _, c := range r.gw.calls {
			if c.at >= begin && c.at < end {
				n++
			}
		}
	})
	t.Logf("%d calls in %v", n, end-begin)
	return n
}

// A machine that is too slow for its limit goes on calling: it does not spend its time on pulling jobs for slots that have passed when the jobs are
// ready, and a job that is ready takes another slot. Where every slot was kept in hand two processes made 341 calls, and none; where each job whose slot had passed
// went back to the queue, 1,446, 391 and 12.
func TestAMachineThatIsTooBusyGoesOnCalling(t *testing.T) {
	t.Parallel()
	for takes, least := range map[time.Duration]int{6 * time.Millisecond: 1700, 10 * time.Millisecond: 550, 20 * time.Millisecond: 100} {
		t.Run(takes.String()+" a command", func(t *testing.T) {
			t.Parallel()
			if n := slowCalls(t, 2, func() testkit.Hook { return oneProcessor(takes) }); n < least {
				t.Errorf("%d calls, want %d at least", n, least)
			}
		})
	}
}

// A Redis that is far away costs the rate about what its clock is unknown by: calls that will be late for that are counted so from the beginning, and none
// waits for an answer when it is to be written. Where each waited, a Redis 60 ms away left 900 calls of 3,000, and one 80 ms away none. From 120 ms on few jobs are
// ready for the slot that they were pulled for: where these went back to the queue, none was called.
func TestAFarRedisKeepsMostOfTheRate(t *testing.T) {
	t.Parallel()
	for away, least := range map[time.Duration]int{20 * time.Millisecond: 2700, 60 * time.Millisecond: 2100, 80 * time.Millisecond: 900,
		120 * time.Millisecond: 250} {
		t.Run(away.String()+" away", func(t *testing.T) {
			t.Parallel()
			if n := slowCalls(t, 1, func() testkit.Hook { return farAway(away) }); n < least {
				t.Errorf("%d calls, want %d at least", n, least)
			}
		})
	}
}
