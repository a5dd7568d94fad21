package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// unreadLong is how long an outcome may wait for a reader before that is reported.
const unreadLong = 15 * time.Minute

// outcomes checks the readers of the outcome feed, and for a feed that is not configured, to which these
// programs do not write.
func (x *examination) outcomes(ctx context.Context, c redis.UniversalClient, g config.Gateway, v dispatch.Glance) error {
	if v.Outcomes == nil {
		n, err := c.Exists(ctx, redisdb.NewKeys(g.Name).Feed()).Result()
		if n > 0 {
			x.add(warn("outcomes_off", g.Name, fmt.Sprintf("put outcomes back into the file; if nobody reads them any more: redis-cli DEL %s %s", redisdb.NewKeys(g.Name).Feed(), redisdb.NewKeys(g.Name).Outcomes()),
				"Redis has an outcome feed of it, and the file has no outcomes: what programs with this file do is not told"))
		}
		return err
	}
	for _, r := range v.Outcomes.Readers {
		if r.Behind > 0 && v.Now.Sub(r.Since) >= unreadLong {
			x.add(warn("outcomes_unread", g.Name, "start the reader; or take it out of outcomes.readers if it is gone for good",
				"the reader %s is %d outcomes behind, since %s", r.Reader, r.Behind, job.Moment(r.Since)))
		}
		if r.Dropped > 0 {
			x.add(warn("outcomes_dropped", g.Name, "dispatcher export has what became of each job", "%d outcomes were dropped before the reader %s had them", r.Dropped, r.Reader))
		}
	}
	return nil
}
