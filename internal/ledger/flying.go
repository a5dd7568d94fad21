package ledger

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

// flyingMost is how many jobs in flight are examined, which takes Redis a few milliseconds.
const flyingMost = 5000

// InFlight is the number of jobs in flight by lane. All is false if there were more than are examined.
type InFlight struct {
	Jobs map[string]int64
	All  bool
}

// InFlightByLane returns the number of jobs in flight by lane, for the first 5,000.
func (b *Books) InFlightByLane(ctx context.Context) (f InFlight, err error) {
	v, err := flyingScript.Run(ctx, b.c, []string{b.keys.Open(), b.keys.Active()}, b.keys.JobPrefix(), flyingMost).Slice()
	if err != nil {
		return f, err
	}
	if len(v)%2 != 1 {
		return f, redisdb.BadReply("flying.lua", v)
	}
	f.All, f.Jobs = v[0] == int64(1), make(map[string]int64, len(v)/2)
	for i := 1; i < len(v); i += 2 {
		f.Jobs[fmt.Sprint(v[i])], _ = v[i+1].(int64)
	}
	return f, nil
}

// Unsorted returns how many jobs are in the queue's own lines, by class; the default class has the empty name.
// Jobs that were called before share lines and are not counted. With lanes, jobs stay in these lines until the
// next call.
func (b *Books) Unsorted(ctx context.Context, classes []string) (map[string]int64, error) {
	lines := [][2]string{{"", b.keys.Due()}, {"", b.keys.Pending()}}
	for _, class := range classes {
		lines = append(lines, [2]string{class, b.keys.First(class)})
	}
	all, long := make(map[string]int64, len(classes)+1), make([]*redis.IntCmd, len(lines))
	_, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, line := range lines {
			long[i] = p.LLen(ctx, line[1])
		}
		return nil
	})
	for i, line := range lines {
		all[line[0]] += long[i].Val()
	}
	return all, err
}
