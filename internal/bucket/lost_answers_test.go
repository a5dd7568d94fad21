package bucket

import (
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Two processes trim, release and call slots, and questions to Redis or its answers are lost. Redis counts at least what is out and what was called, in all windows
// together as in their lists, and no place in flight stays taken.
func TestRedisCountsAllThatIsOutWhenAnswersAreLost(t *testing.T) {
	t.Parallel()
	const (
		heard int64 = iota
		unasked
		unanswered
	)
	var line atomic.Int64
	gateway, own := testkit.Gateway(t), testkit.Client(t)
	keys, cfg := redisdb.NewKeys(gateway), PacerConfig{Gateway: gateway, Limits: []job.Limit{per(400, time.Second), per(200_000, time.Hour)}, Burst: 400, MaxInFlight: 50, CallTimeout: time.Minute}
	var pacers []*Pacer
	for range 2 {
		c := testkit.Client(t).(*redis.Client)
		c.AddHook(testkit.Around(func(cmds []redis.Cmder, send func() error) error {
			now := line.Load()
			if now != unasked {
				if err := send(); now == heard || redis.HasErrorPrefix(err, "NOSCRIPT") {
					return err
				}
			}
			for _, cmd := range cmds {
				cmd.SetErr(io.EOF)
			}
			return io.EOF
		}))
		pacers = append(pacers, newTestPacer(t, c, cfg))
	}
	counted := func() (n, listed int64) {
		n, _ = own.HGet(t.Context(), keys.Pace(), "n2").Int64()
		for i, v := range own.LRange(t.Context(), keys.PaceWindow(2), 0, -1).Val() {
			if units, _ := strconv.ParseInt(v, 10, 64); i%2 == 1 {
				listed += units
			}
		}
		return n, listed
	}
	type reserved struct {
		by   *Pacer
		slot job.Slot
	}
	rng := rand.New(rand.NewPCG(1, 7)) //nolint:gosec // no secret depends on it
	var out []reserved
	called := int64(0)
	for step := range 500 {
		line.Store(heard)
		if p := pacers[rng.IntN(2)]; len(out) < 12 && rng.IntN(2) == 0 {
			s, err := p.Take(t.Context(), 1+rng.Int64N(5), "")
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, reserved{p, s})
		} else if len(out) > 0 {
			i := rng.IntN(len(out))
			r, gone := out[i], true
			if rng.IntN(4) == 0 {
				line.Store(1 + rng.Int64N(2))
			}
			switch rng.IntN(3) {
			case 0:
				var err error
				if r.slot, err = r.by.Trim(t.Context(), r.slot, 1+rng.Int64N(3)); err == nil {
					out[i], gone = r, false
					break
				}
				if rng.IntN(2) == 0 {
					line.Store(heard)
				}
				fallthrough
			case 1:
				_ = r.by.Release(t.Context(), r.slot)
			default:
				r.by.Written(r.slot, time.Now())
				r.by.End(t.Context(), r.slot)
				called += r.slot.Cost
			}
			if gone {
				out = slices.Delete(out, i, i+1)
			}
		}
		line.Store(heard)
		least := called
		for _, r := range out {
			least += r.slot.Cost
		}
		if n, listed := counted(); n < least || n != listed {
			t.Fatalf("step %d: Redis counts %d units, and %d in the list; %d are out or were called", step, n, listed, least)
		}
	}
	testkit.Eventually(t, 20*time.Second, "the places of all that is over to be free", func() bool { return own.ZCard(t.Context(), keys.Flight()).Val() == int64(len(out)) })
}
