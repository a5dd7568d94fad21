// Package crash kills a process at each of its Redis commands, in everything that processes do: before the command is sent,
// when half of it is sent, or when Redis has run it and the answer is still on the way. Or the process only loses its connection at that moment.
// Another process continues from there. In the end each job must be where it belongs, each call must have had its slot, and no
// card may be charged twice.
package crash

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

var (
	full = flag.Bool("full", false, "each command in every way; otherwise every sixth command, from the 24th on every twelfth, and the ways take turns")
	how  = flag.String("how", "", "only this way: before, torn, after, unsent or lost")
	only = flag.Int("at", 0, "only at this command")
)

func TestMain(m *testing.M) {
	if text := os.Getenv(specEnv); text != "" {
		os.Exit(doomed(text))
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "100") // the stage has its own bound
	os.Exit(m.Run())
}

const (
	// together is how many runs are under way at once: they wait more than they work.
	together = 20
	// beyond is how many processes must outlive their crash point before no later one is tried: the number of commands that a
	// process needs varies a little. Where crash points are a stride apart, two are enough.
	beyond, beyondStrides = 3, 2
	// stride is the distance between two crash points of the everyday run, up to command dense; after that it is twice as long. Where either part begins is
	// random, so that several runs cover all commands.
	stride, dense = 6, 24
	// enough is how many bad runs are shown of a flow.
	enough = 3
)

func TestEveryCrashPoint(t *testing.T) {
	server := testkit.Server(t)
	s := &stage{addr: server.Addr(), c: server.Client(), bank: openBank(t), free: make(chan struct{}, together)}
	for _, f := range flows() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			begun, tried := time.Now(), &tally{}
			var all sync.WaitGroup
			for _, ways := range s.ways() {
				all.Go(func() { s.everyPoint(t, f, ways, tried) })
			}
			all.Wait()
			t.Logf("%v in %v", tried, time.Since(begun).Round(time.Second/10))
		})
	}
}

// ways returns the ways that take turns over the commands. Where the turns begin differs from run to run.
func (s *stage) ways() [][]string {
	switch {
	case *how != "":
		return [][]string{{*how}}
	case *full:
		return [][]string{{before}, {torn}, {after}, {unsent}, {lost}}
	}
	ways := []string{before, lost, after, unsent}
	turn := rand.IntN(len(ways))
	return [][]string{append(ways[turn:], ways[:turn]...)}
}

// tally counts the crash points that processes have reached, by the way to crash.
type tally struct {
	mu   sync.Mutex
	hits map[string]int
	last int
}

func (n *tally) add(way string, at int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hits == nil {
		n.hits = map[string]int{}
	}
	n.hits[way]++
	n.last = max(n.last, at)
}

// String says how many crash points were tried.
func (n *tally) String() string {
	text, sum := "", 0
	for _, way := range slices.Sorted(maps.Keys(n.hits)) {
		text += fmt.Sprintf(", %d %s", n.hits[way], way)
		sum += n.hits[way]
	}
	return fmt.Sprintf("commands 1 to %d, %d crash points%s", n.last, sum, text)
}

// stage is what all runs share.
type stage struct {
	addr string
	c    redis.UniversalClient
	bank *bank
	free chan struct{}
	runs atomic.Int64
}

// everyPoint kills a process of the flow at its first crash point, another one at the second, and so on, until processes end before
// they get that far.
func (s *stage) everyPoint(t *testing.T, f flow, ways []string, tried *tally) {
	var outlived, bad atomic.Int64
	var all sync.WaitGroup
	first, step := s.points()
	last := int64(beyond)
	if step > 1 {
		last = beyondStrides
	}
	for i, at := 0, first; outlived.Load() < last && bad.Load() < enough && (*only == 0 || at == *only); i, at = i+1, at+step {
		if step == stride && at >= dense {
			step, at = 2*stride, at+stride*rand.IntN(2)
		}
		way := ways[i%len(ways)]
		s.free <- struct{}{}
		all.Go(func() {
			defer func() { <-s.free }()
			r := s.newRun(f, way, at)
			if r.do() {
				tried.add(way, at)
			} else {
				outlived.Add(1)
			}
			if len(r.faults) > 0 {
				bad.Add(1)
				t.Errorf("%s\n%s\nthe process that died said:\n%s", r, strings.Join(r.faults, "\n"), tail(r.log.String()))
			}
		})
	}
	all.Wait()
}

// points returns the first command to die at, and how far it is to the next.
func (s *stage) points() (first, step int) {
	switch {
	case *only > 0:
		return *only, 1
	case *full || *how != "":
		return 1, 1
	}
	return 1 + rand.IntN(stride), stride
}

func (s *stage) newRun(f flow, way string, at int) *run {
	gateway := fmt.Sprintf("g%d", s.runs.Add(1))
	return &run{
		spec: spec{Flow: f.name, Gateway: gateway, Bank: s.bank.addr, Redis: s.addr, Base: time.Now().UnixMicro(), How: way, At: at, Fed: rand.IntN(2) == 0},
		flow: f, bank: s.bank, c: s.c, keys: redisdb.NewKeys(gateway), ctx: context.Background(), early: rand.IntN(2) == 0,
	}
}

// String says what the run was.
func (r *run) String() string {
	when := "while the next process works"
	if r.early {
		when = "before the next process starts"
	}
	feed := "without an outcome feed"
	if r.Fed {
		feed = "with an outcome feed"
	}
	return fmt.Sprintf("%s, %s command %d (-args -how %s -at %d), %s, the dead one's deadlines pass %s:", r.flow.name, r.How, r.At, r.How, r.At, feed, when)
}

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-25):], "\n")
}
