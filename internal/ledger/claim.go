package ledger

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// claim holds the claims of one offer.
type claim struct {
	gateway string
	token   string
	groups  []*claimGroup
	until   int64        // deadline for admitting jobs under them (µs, Redis's clock)
	others  map[int]bool // indices of the jobs that another gateway claims, or whose claim has expired
}

// claimGroup holds claims that one script makes.
type claimGroup struct {
	keys []string
	at   []int // the indices of their jobs
	err  error
}

// claim claims the ids of jobs for a gateway.
func (a *Anywhere) claim(ctx context.Context, gateway string, jobs []job.Newcomer) (claim, error) {
	c := claim{gateway: gateway, token: rand.Text(), groups: a.groups(jobs), others: map[int]bool{}}
	err := a.run(ctx, &c, false)
	return c, err
}

// renew extends claims that have not expired to their full life from now. An expired claim is not renewed,
// because what it prevented may have happened.
func (a *Anywhere) renew(ctx context.Context, c *claim) error { return a.run(ctx, c, true) }

// run runs claim.lua for all groups.
func (a *Anywhere) run(ctx context.Context, c *claim, held bool) error {
	replies := make([][]any, len(c.groups))
	c.each(func(i int, g *claimGroup) {
		replies[i], g.err = claimScript.Run(ctx, a.c, g.keys, c.gateway, c.token, claimLife.Milliseconds(), redisdb.Flag(held)).Slice()
	})
	c.until = 0
	for i, g := range c.groups {
		if g.err != nil {
			return g.err
		}
		now, ok := at[int64](replies[i], 0)
		if !ok || len(replies[i]) != 1+len(g.keys) {
			return redisdb.BadReply("claim.lua", replies[i])
		}
		if until := now + claimUse.Microseconds(); c.until == 0 || until < c.until {
			c.until = until
		}
		for n, place := range g.at {
			if other, _ := at[string](replies[i], 1+n); other != "" {
				c.others[place] = true
			}
		}
	}
	return nil
}

// unclaim releases claims. Those that it can't release expire.
func (a *Anywhere) unclaim(ctx context.Context, c claim) {
	c.each(func(_ int, g *claimGroup) { _ = unclaimScript.Run(ctx, a.c, g.keys, c.token).Err() })
}

// each runs do for all groups concurrently.
func (c claim) each(do func(int, *claimGroup)) {
	var all sync.WaitGroup
	for i, g := range c.groups {
		all.Go(func() { do(i, g) })
	}
	all.Wait()
}

// groups splits the claims of jobs into groups that one script can make: in a cluster, those with the same hash
// tag.
func (a *Anywhere) groups(jobs []job.Newcomer) (groups []*claimGroup) {
	_, cluster := a.c.(*redis.ClusterClient)
	byTag := map[string]*claimGroup{}
	for i, n := range jobs {
		key, tag := redisdb.Claim(n.Job.ID)
		if !cluster {
			tag = ""
		}
		g := byTag[tag]
		if g == nil {
			g = &claimGroup{}
			byTag[tag], groups = g, append(groups, g)
		}
		g.keys, g.at = append(g.keys, key), append(g.at, i)
	}
	return groups
}
