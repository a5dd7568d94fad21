package dispatch

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// tries counts how often a step bounds its wait by a context derived from this one.
type tries struct {
	context.Context
	n *atomic.Int64
}

func (c tries) Deadline() (time.Time, bool) {
	c.n.Add(1)
	return c.Context.Deadline()
}

// A look-up between two pages that can't get a slot tries again with pauses, also if each try fails at once.
func TestALookUpBetweenPagesPauses(t *testing.T) {
	t.Parallel()
	p, err := Pacer(testkit.Client(t), config.Gateway{Name: testkit.Gateway(t), Leak: config.Leak{Limits: []job.Limit{{N: 100, Window: time.Second}}}}, bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	p.Close(t.Context()) // its slots are refused at once
	l := &lookUp{u: &unit{ctx: t.Context()}, s: &set{}, pacer: workerPacer{Pacer: p, machine: &ownMachine{}}, until: time.Now().Add(10 * firstWrite)}
	n := &atomic.Int64{}
	if l.goOn(tries{t.Context(), n}) {
		t.Error("it goes on without a slot")
	}
	if n := n.Load(); n < 1 || n > 11 {
		t.Errorf("%d tries in ten pauses", n)
	}
}

// A process hears of a held gateway and then of others while the slots of the held one can't be given back.
func TestAStalledReleaseHoldsUpNoNews(t *testing.T) {
	t.Parallel()
	c, name := testkit.Client(t).(*redis.Client), testkit.Gateway(t)
	p, err := Pacer(c, config.Gateway{Name: name, Leak: config.Leak{Limits: []job.Limit{{N: 1000, Window: time.Second}}}}, bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		c.RPush(t.Context(), redisdb.NewKeys(name).Pending(), "x~1")
	}
	if _, err := p.Next(t.Context()); err != nil { // it has more slots than this one
		t.Fatal(err)
	}
	stalls, goes := &atomic.Int64{}, make(chan struct{})
	c.AddHook(testkit.Around(func(_ []redis.Cmder, send func() error) error {
		stalls.Add(1)
		<-goes
		return send()
	}))
	d := &Dispatcher{}
	u := &unit{name: name, pacer: p, mover: &errand{ctx: t.Context()}}
	d.roster.Store(&[]*unit{u})
	heard := make(chan struct{})
	go func() {
		d.hear(bucket.HoldChannel, name)
		close(heard)
	}()
	select {
	case <-heard:
	case <-time.After(time.Minute):
		t.Error("it waits for Redis")
	}
	testkit.Eventually(t, time.Minute, "the slots to be given back", func() bool { return stalls.Load() > 0 })
	close(goes)
	p.Close(t.Context())
}
