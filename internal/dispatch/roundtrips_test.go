package dispatch

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// counter counts the round trips of a client for single jobs, and the scripts for single jobs.
type counter struct {
	keys         redisdb.Keys
	mu           sync.Mutex
	own, scripts int
}

func (c *counter) count(cmds []redis.Cmder, send func() error) error {
	c.mu.Lock()
	scripts := 0
	for _, cmd := range cmds {
		if c.forAJob(cmd) {
			scripts++
		}
	}
	c.own += min(scripts, 1)
	c.scripts += scripts
	c.mu.Unlock()
	return send()
}

func (c *counter) forAJob(cmd redis.Cmder) bool {
	first := ""
	if a := cmd.Args(); len(a) > 3 && cmd.Name() == "evalsha" {
		first, _ = a[3].(string)
	}
	return strings.HasPrefix(first, c.keys.JobPrefix()) || first == c.keys.Active() || first == c.keys.Pending() && fmt.Sprint(cmd.Args()[2]) == "8" // of the dequeue
}

// A job costs three scripts at most: for its dequeue, the opening of its attempt, and its outcome with the end of its task. Jobs in flight at the same time
// share round trips.
func TestAJobCostsThreeScriptsAtMost(t *testing.T) {
	t.Parallel()
	plainly(t, "leak: {limits: [2000/s]}\nadmission: {limits: [2000/s], burst: 10000}", func(t *testing.T, r *rig) {
		const jobs = 1000
		r.put(0, jobs)
		count := &counter{keys: redisdb.NewKeys(r.cfg.Gateways[0].Name)}
		r.db.Client.AddHook(testkit.Around(count.count))
		d := r.serve()
		testkit.Eventually(t, 20*time.Second, "all jobs to be done", func() bool { return r.standing(0).Done == jobs })
		d.Stop(t.Context())
		t.Logf("%.2f scripts a job in %.2f round trips", float64(count.scripts)/jobs, float64(count.own)/jobs)
		if count.scripts > jobs*31/10 || count.scripts < jobs*2 {
			t.Errorf("%d scripts for %d jobs, want 3 each at most", count.scripts, jobs)
		}
	})
}
