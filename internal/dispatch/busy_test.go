package dispatch

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// processor is the one that all processes of a trial share: each of their commands to Redis takes it for a while, one after the other.
type processor struct {
	takes time.Duration
	turn  chan struct{}
}

func (p processor) work(commands int) {
	p.turn <- struct{}{}
	<-time.After(time.Duration(commands) * p.takes)
	<-p.turn
}

func (p processor) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p processor) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.work(1)
		return next(ctx, cmd)
	}
}

func (p processor) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.work(len(cmds))
		return next(ctx, cmds)
	}
}

// A machine that is too slow for its limit goes on calling: it does not spend its time on pulling jobs for slots that have passed when the jobs are
// ready. A call takes about 4 commands where every slot is used, so it could make 1,250 and 750 calls; without a bound it made 341 and none.
func TestAMachineThatIsTooBusyGoesOnCalling(t *testing.T) {
	t.Parallel()
	for takes, least := range map[time.Duration]int{6 * time.Millisecond: 750, 10 * time.Millisecond: 250} {
		t.Run(takes.String()+" a command", func(t *testing.T) {
			t.Parallel()
			const begin, end = 10 * time.Second, 40 * time.Second
			play(t, 2, 100, "", nil, func(r *trial) {
				r.good(3000)
				r.v.db.Client.AddHook(processor{takes, make(chan struct{}, 1)})
				r.till(end)
			}, func(t *testing.T, r *trial, _ map[string]job.Reason) {
				n := 0
				for _, c := range r.gw.calls {
					if c.at >= begin && c.at < end {
						n++
					}
				}
				t.Logf("%d calls in %v", n, end-begin)
				if n < least {
					t.Errorf("%d calls in %v, want %d at least", n, end-begin, least)
				}
			})
		})
	}
}
