package ledger

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
)

const (
	// claimLife is how long a claim on an id lasts if its process dies and never releases it.
	claimLife = 12 * time.Second
	// claimUse is how long jobs may be admitted under a claim. The rest of its life allows for differing clocks
	// of a cluster's nodes.
	claimUse = 4 * time.Second
)

// keysAtOnce is the most keys in one pipeline, unless one gateway alone has more. Redis needs well below a
// second for them.
const keysAtOnce = 50_000

// Anywhere keeps ids unique over all gateways: it admits a job only if no other gateway knows its id. It is
// safe for concurrent use.
//
//	claim the ids → ask the other gateways → accept.lua, until claimUse is over → release the claims
//
// The claims keep two gateways from admitting the same id at once. Apart from them, only the records say what
// is known: an id is known exactly as long as a record of it exists.
type Anywhere struct {
	c          redis.UniversalClient
	gateways   []string
	box        func(gateway string) *seal.Box
	registered atomic.Pointer[[]string] // as last read; nil: not read yet
}

// NewAnywhere returns an Anywhere for these gateways and all others with jobs in Redis. box returns what sealed
// a gateway's digests; nil for nothing.
func NewAnywhere(c redis.UniversalClient, gateways []string, box func(gateway string) *seal.Box) *Anywhere {
	return &Anywhere{c: c, gateways: gateways, box: box}
}

// Offerer prepares offers of chunks of jobs.
type Offerer interface {
	Offer(jobs []job.Newcomer) (job.Offer, error)
}

// Of returns the books of one gateway, wrapped so that jobs known at another gateway are not admitted.
func (a *Anywhere) Of(gateway string, books Offerer) Offerer {
	return &unique{all: a, gateway: gateway, books: books}
}

type unique struct {
	all     *Anywhere
	gateway string
	books   Offerer
}

// Offer implements Offerer. Answers may be job.Claimed. Room.Elsewhere says which other gateway knows a job.
func (u *unique) Offer(jobs []job.Newcomer) (job.Offer, error) {
	whole, err := u.books.Offer(jobs)
	if err != nil {
		return nil, err
	}
	o := &uniqueOffer{unique: u, jobs: jobs, whole: whole}
	return o.put, nil
}

// uniqueOffer is one offer. Its fields are set by the last query of the other gateways.
type uniqueOffer struct {
	*unique
	jobs  []job.Newcomer
	whole job.Offer // of all jobs, prepared before the query: usually no other gateway knows any

	sent      bool // left was offered, and no answer came
	claim     claim
	answers   []job.Admittance // for the jobs that other gateways know or claim
	elsewhere map[int]string
	left      []int // indices of the other jobs
	offer     job.Offer
}

func (o *uniqueOffer) put(ctx context.Context, ticket job.Ticket, mode string) ([]job.Admittance, job.Room, error) {
	if o.sent { // repeat it to get the lost answer; after its deadline, it was not carried out and never will be
		if answers, room, err := o.send(ctx, ticket, mode); !late(err) {
			return answers, room, err
		}
	}
	if err := o.look(ctx); err != nil {
		return nil, job.Room{}, err
	}
	answers, room, err := o.send(ctx, ticket, mode)
	if late(err) {
		err = &redisdb.Error{Kind: redisdb.ErrAway, Message: fmt.Sprintf("Redis took jobs in later than %s after their ids were claimed", claimUse), Err: err}
	}
	return answers, room, err
}

func late(err error) bool { return redis.HasErrorPrefix(err, "LATE") }

// turnedAway reports whether an error means that nothing was changed. That does not hold for an earlier try of
// the same offer, which may still be in flight.
func turnedAway(err error) bool {
	return late(err) || redis.HasErrorPrefix(err, "EARLY") || redis.HasErrorPrefix(err, "SHUT")
}

// look claims the ids, asks the other gateways, and prepares the offer of the jobs that none of them knows or
// claims.
func (o *uniqueOffer) look(ctx context.Context) error {
	o.sent, o.left, o.offer = false, nil, o.whole
	o.answers, o.elsewhere = make([]job.Admittance, len(o.jobs)), map[int]string{}
	var err error
	if o.claim, err = o.all.claim(ctx, o.gateway, o.jobs); err != nil {
		return err
	}
	known, err := o.all.known(ctx, &o.claim, o.jobs)
	if err != nil {
		return err
	}
	var rest []job.Newcomer
	for i, n := range o.jobs {
		k, is := known[i]
		switch {
		case is:
			o.elsewhere[i], o.answers[i] = k.gateway, job.Conflict
			if k.digest == record.Erased || o.all.box(k.gateway).SameDigest(n.Job.ID, n.Digest, k.digest) {
				o.answers[i] = job.Duplicate
			}
		case o.claim.others[i]:
			o.answers[i] = job.Claimed
		default:
			o.left, rest = append(o.left, i), append(rest, n)
		}
	}
	if len(rest) < len(o.jobs) {
		o.offer, err = o.books.Offer(rest)
	}
	return err
}

// send offers what is left to the gateway's own books. It releases the claims once they have answered or turned
// the offer away.
func (o *uniqueOffer) send(ctx context.Context, ticket job.Ticket, mode string) ([]job.Admittance, job.Room, error) {
	again := o.sent
	o.sent, ticket.Until = true, o.claim.until
	some, room, err := o.offer(ctx, ticket, mode)
	if err != nil {
		if !again && turnedAway(err) {
			o.sent = false
			o.all.unclaim(ctx, o.claim)
		}
		return nil, room, err
	}
	o.sent = false
	o.all.unclaim(ctx, o.claim)
	for i, at := range o.left {
		o.answers[at] = some[i]
	}
	room.Elsewhere = o.elsewhere
	return o.answers, room, nil
}

// known is a job that a gateway knows, and the digest of its payload.
type known struct{ gateway, digest string }

// known asks all gateways but one which jobs they know. While a gateway is renamed, a query of the new name
// followed by one of the old name can miss a job under both; then all gateways are asked twice. They are also
// asked again if gateways were added or removed since the register was read.
func (a *Anywhere) known(ctx context.Context, c *claim, jobs []job.Newcomer) (map[int]known, error) {
	found, last := map[int]known{}, a.registered.Load()
	if last == nil {
		names, err := a.learn(ctx)
		if err != nil {
			return nil, err
		}
		last = &names
	}
	for pass := 1; ; pass++ {
		moving, err := a.ask(ctx, c, *last, jobs, found)
		if err != nil {
			return nil, err
		}
		names, err := a.learn(ctx)
		if err != nil {
			return nil, err
		}
		if slices.Equal(*last, names) && (!moving || pass > 1) {
			return found, nil
		}
		last = &names
	}
}

// learn reads the register. asynq queues whose names can't be gateways belong to other programs.
func (a *Anywhere) learn(ctx context.Context) ([]string, error) {
	names, err := redisdb.Registered(ctx, a.c)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return job.CheckGateway(name) != nil })
	a.registered.Store(&names)
	return names, nil
}

// ask asks all gateways but the claim's own once, and reports whether one is being renamed. If that takes
// several pipelines, the claims are renewed after each, so that they last for any number of gateways.
func (a *Anywhere) ask(ctx context.Context, c *claim, registered []string, jobs []job.Newcomer, found map[int]known) (moving bool, err error) {
	names := slices.Concat(a.gateways, registered)
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == c.gateway })
	most := max(1, keysAtOnce/max(1, len(jobs)))
	for some := range slices.Chunk(names, most) {
		moves, err := a.askSome(ctx, some, jobs, found)
		if err != nil {
			return false, err
		}
		moving = moving || moves
		if len(names) > most {
			if err := a.renew(ctx, c); err != nil {
				return false, err
			}
		}
	}
	return moving, nil
}

// askSome asks some gateways in one pipeline, and reports whether one is being renamed.
func (a *Anywhere) askSome(ctx context.Context, names []string, jobs []job.Newcomer, found map[int]known) (moving bool, err error) {
	asked := make([]*redis.Cmd, len(names))
	err = knownScript.Pipelined(ctx, a.c, func(run redisdb.Runner) {
		for i, name := range names {
			k := redisdb.NewKeys(name)
			keys := append(make([]string, 0, 1+len(jobs)), k.Alive())
			for _, n := range jobs {
				keys = append(keys, k.Job(n.Job.ID))
			}
			asked[i] = run(keys)
		}
	})
	if err != nil {
		return false, err
	}
	for i, name := range names {
		reply, err := asked[i].Slice()
		if err != nil {
			return false, err
		}
		is, ok := at[int64](reply, 0)
		if !ok {
			return false, redisdb.BadReply("known.lua", reply)
		}
		moving = moving || is == 1
		for i := 1; i < len(reply); i += 2 {
			place, ok1 := at[int64](reply, i)
			digest, ok2 := at[string](reply, i+1)
			if !ok1 || !ok2 || place < 1 || place > int64(len(jobs)) {
				return false, redisdb.BadReply("known.lua", reply)
			}
			found[int(place)-1] = known{name, digest}
		}
	}
	return moving, nil
}

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
