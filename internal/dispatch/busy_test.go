package dispatch

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// slowly delays commands on their way to Redis, and answers on their way back.
func slowly(there, back func(commands int)) testkit.Hook {
	return testkit.Around(func(cmds []redis.Cmder, send func() error) error {
		there(len(cmds))
		defer back(len(cmds))
		return send()
	})
}

// oneProcessor is the single processor of a machine that all processes of a trial share: each Redis command takes it for a while, one after the other.
func oneProcessor(takes time.Duration) testkit.Hook {
	turn := make(chan struct{}, 1)
	return slowly(func(commands int) {
		turn <- struct{}{}
		<-time.After(time.Duration(commands) * takes)
		<-turn
	}, func(int) {})
}

// farAway is a Redis whose answers take away.
func farAway(away time.Duration) testkit.Hook {
	half := func(int) { <-time.After(away / 2) }
	return slowly(half, half)
}

// slowCalls counts the calls in 30 s, from ten seconds after the beginning, at a limit of 100/s.
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

// A machine that is too slow for its limit keeps calling. It does not spend its time on pulling jobs for slots that have passed when the jobs are ready, and a
// job that is ready takes another slot. When all slots were kept, two processes made 341 calls, and none. When each job whose slot had passed returned to the queue,
// they made 1,446, 391 and 12.
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

// A Redis that is far away lowers the rate by about the uncertainty of its clock. Calls that will be late because of it are counted as late from the beginning, and
// none waits for an answer before its write. When each waited, a Redis 60 ms away left 900 calls of 3,000, and one 80 ms away none. From 120 ms on, few jobs are ready for
// the slot that they were pulled for. When these jobs returned to the queue, none was called.
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
