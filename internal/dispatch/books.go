// Package dispatch wires the steps together for the gateways of a configuration. It has the books and the door
// that both programs use, and the running dispatcher. It makes no decisions of its own. gateway.go shows who
// calls whom.
package dispatch

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/bucket"
	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/gateway"
	"spillway/internal/incarnation"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/producer"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
)

// Books returns the books of one gateway.
func Books(c redis.UniversalClient, g config.Gateway) *ledger.Books {
	return ledger.New(c, bookkeeping(c, g))
}

func bookkeeping(c redis.UniversalClient, g config.Gateway) ledger.Config {
	cfg := ledger.Config{
		Gateway:     g.Name,
		Encode:      queue.NewEncoder(g.Name).Encode,
		InOrder:     g.Replay == config.ReplayAuto,
		Parked:      job.ParkedBound{Jobs: g.Parked.Most, Bytes: g.Parked.Bytes},
		Keys:        g.Request.Key.Any(),
		KeyLifetime: g.Request.KeyCovers(),
		Sent:        sent(g.Own()),
		RouteSent:   routeSent(g),
		OwnLanes:    g.Lanes != nil && g.Lanes.Field == "",
		First:       queue.FirstLines(g.Name, g.Priority.List()),
		Lanes:       pacing(g, Limits{Limits: g.Leak.Limits}).WaitingLanes(),
		Passing:     g.Priority.Above(),
		MostPassing: g.Admission.Burst,
		Asks:        asks(g),
		Attempts:    g.Retry.Attempts,
		Brake:       g.BatchBrake,
		Brakes:      g.Brakes,
		Timeout:     g.Request.Timeout,
		Approval:    g.Approval,
		Feed:        g.Outcomes != nil,
		Dedupe:      g.Dedupe,
		Money:       Money(g.Amount),
		Box:         Box(g),
	}
	follower := Follow(c, g)
	if cfg.Unkept = follower.err; cfg.Unkept == nil {
		cfg.Bucket, cfg.Current = follower.check, follower.bucket
	}
	return cfg
}

// Limits are the limits in force for a gateway.
type Limits struct {
	Limits  []job.Limit
	Live    bool  // set by an operator; they replace the configured ones until they are reset
	Version int64 // grows with each change; zero if there was none
}

const (
	versionField = "version"
	limitsField  = "limits"
)

// CurrentLimits returns the limits in force for a gateway.
func CurrentLimits(ctx context.Context, c redis.UniversalClient, g config.Gateway) (Limits, error) {
	return currentLimits(ctx, c, g.Name, g.Leak.Limits)
}

// currentLimits returns the limits in force for a gateway with these configured limits.
func currentLimits(ctx context.Context, c redis.UniversalClient, gateway string, file []job.Limit) (Limits, error) {
	h, err := c.HGetAll(ctx, redisdb.NewKeys(gateway).LiveLimits()).Result()
	if err != nil {
		return Limits{}, err
	}
	l := Limits{Limits: file}
	l.Version, _ = strconv.ParseInt(h[versionField], 10, 64)
	text := strings.Fields(h[limitsField])
	if len(text) == 0 {
		return l, nil
	}
	l.Live, l.Limits = true, nil
	for _, t := range text {
		one, err := job.ParseLimit(t)
		if err != nil {
			return Limits{}, fmt.Errorf("gateway %s: the limit set live can't be read: %w", gateway, err)
		}
		l.Limits = append(l.Limits, one)
	}
	return l, nil
}

// followEvery is how long the limits set at run time are cached.
const followEvery = time.Second

// Follower knows the limits in force at a gateway's admission. Configured limits for admission apply if there
// are any. Otherwise admission has the leak's limits, including those set at run time. A Follower is safe for
// concurrent use.
type Follower struct {
	c       redis.UniversalClient
	gateway string
	leak    []job.Limit // as configured
	file    config.Admission

	mu    sync.Mutex
	read  time.Time
	holds config.Admission
	check bucket.Algorithm
	err   error // why there is no check: admission's limits are not supported
}

// Follow returns a Follower. It reads nothing before it is asked.
func Follow(c redis.UniversalClient, g config.Gateway) *Follower {
	f := &Follower{c: c, gateway: g.Name, leak: g.Leak.Limits, file: g.Admission, holds: g.Admission}
	if f.check, f.err = newAlgorithm(g.Admission); f.err != nil {
		f.err = fmt.Errorf("admission of gateway %s: %w", g.Name, f.err)
	}
	return f
}

func (f *Follower) bucket(ctx context.Context) ledger.Bucket {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.follow(ctx)
	return f.check
}

func (f *Follower) follow(ctx context.Context) {
	if !f.file.Follows || !f.read.IsZero() && time.Since(f.read) < followEvery {
		return
	}
	now, err := currentLimits(ctx, f.c, f.gateway, f.leak)
	if err == nil || !f.read.IsZero() { // if they were never read, the next call tries again
		f.read = time.Now()
	}
	if err != nil {
		return
	}
	holds := admissionAt(f.file, now)
	if slices.Equal(holds.Limits, f.holds.Limits) && holds.Burst == f.holds.Burst {
		return
	}
	if check, err := newAlgorithm(holds); err == nil {
		f.holds, f.check = holds, check
	}
}

// Admission returns the limits in force at admission, at most a second old. While Redis is unreachable or has
// unsupported limits, the last ones stay.
func (f *Follower) Admission(ctx context.Context) config.Admission {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.follow(ctx)
	return f.holds
}

// AdmissionAt returns the limits in force at a gateway's admission, given the leak's limits.
func AdmissionAt(g config.Gateway, l Limits) config.Admission { return admissionAt(g.Admission, l) }

func admissionAt(file config.Admission, l Limits) config.Admission {
	if !l.Live {
		return file
	}
	return file.Under(l.Limits)
}

func newAlgorithm(a config.Admission) (bucket.Algorithm, error) {
	return bucket.NewAlgorithm(a.Algorithm, a.Limits, a.Burst, a.Precision)
}

// routeSent is sent for each route, by name; nil if the gateway has none.
func routeSent(g config.Gateway) map[string]string { return byRoute(g, sent) }

// byRoute returns a value for each route, by name; nil if the gateway has none.
func byRoute[T any](g config.Gateway, of func(config.Gateway) T) map[string]T {
	if len(g.Routes) == 0 {
		return nil
	}
	all := make(map[string]T, len(g.Routes))
	for _, name := range g.RouteNames() {
		as, _ := g.On(name)
		all[name] = of(as)
	}
	return all
}

// sent returns the digest of how a gateway's calls are formed. While a call of a job may have charged, a call
// with another digest is not made.
func sent(g config.Gateway) string {
	q := g.Request
	return gateway.Config{URL: q.URL.Reveal(), Method: q.Method, Encoding: q.Encoding, Key: q.Key, JobHeaders: jobHeaders(q), Strip: q.Strip}.Digest()
}

// Store returns one gateway's dead letters.
func Store(c redis.UniversalClient, g config.Gateway) *deadletter.Store {
	s := deadletter.New(c, g.Name).Sealing(Box(g))
	s.Brake, s.Asks, s.RouteAsks, s.Feed = g.BatchBrake, asksOf(g.Own()), routeAsks(g), g.Outcomes != nil
	return s
}

// Rules returns which of a gateway's parked jobs may be sent again now.
func Rules(ctx context.Context, c redis.UniversalClient, g config.Gateway) (deadletter.Rules, error) {
	s, err := incarnation.Look(ctx, c, g.Name)
	return deadletter.Rules{Keys: g.Request.Key.Any(), KeyLifetime: g.Request.KeyCovers(), Asks: asksOf(g.Own()), RouteAsks: routeAsks(g), Now: s.Now, Beat: s.Beat, SetBack: s.SetBack,
		Money: Money(g.Amount)}, err
}

// Box returns the box that seals and opens a gateway's payloads; nil if no encryption is configured.
func Box(g config.Gateway) *seal.Box {
	if g.Encryption == nil {
		return nil
	}
	keys := make([]seal.Key, len(g.Encryption.Keys))
	for i, k := range g.Encryption.Keys {
		keys[i] = seal.Key{ID: k.ID, Secret: []byte(k.Secret.Reveal())}
	}
	return seal.New(g.Name, g.Encryption.Active, keys).Checking(digest, g.Encryption.Require)
}

func digest(payload []byte) string { return producer.Digest(payload) }

// MaxCost returns the largest cost that a job of this gateway may have: every limit of admission, leak, lanes
// and routes can grant it.
func MaxCost(g config.Gateway) int64 {
	most := int64(math.MaxInt64)
	if a, err := newAlgorithm(g.Admission); err == nil { // or else the books report it for each job to be admitted
		most = a.MaxCost()
	}
	limits := slices.Clone(g.Leak.Limits)
	if g.Lanes != nil {
		limits = append(limits, g.Lanes.Limits...)
	}
	for _, r := range g.Routes {
		limits = append(limits, r.Limits...)
	}
	for _, l := range limits {
		most = min(most, l.N)
	}
	return most
}

// Door returns the door to every gateway of a configuration. patience is how long to retry while Redis is
// unreachable.
func Door(c redis.UniversalClient, cfg *config.Config, patience time.Duration) *admission.Door {
	gateways, scoped := make(map[string]admission.Gateway, len(cfg.Gateways)), scope(c, cfg)
	for i, g := range cfg.Gateways {
		own := &cfg.Gateways[i] // one copy for all closures: a gateway's configuration is a kilobyte, and there may be thousands
		kept := bookkeeping(c, g)
		kept.Registers = true
		gateways[g.Name] = admission.Gateway{Books: scoped(g.Name, ledger.New(c, kept)), MaxCost: MaxCost(g), Money: Money(g.Amount),
			Key:   own.Request.Key.Check,
			Route: func(name string) (string, error) { return own.Route(name) },
			Class: func(name string) (string, error) { return own.Class(name) },
			Lane:  laneOf(g), Keys: keysOf(g.Name)}
	}
	return admission.New(admission.Config{
		Gateways: gateways, Digest: producer.Digest, Away: redisdb.Away, Patience: patience, Clock: clock.Real{},
	})
}

// laneOf returns a function that returns a job's lane.
func laneOf(g config.Gateway) func(job.Job) (string, error) {
	key, gateway := g.LaneKey(), g.Name
	return func(j job.Job) (string, error) { return producer.Lane(gateway, key, j.Lane, j.Payload) }
}

// scope returns what makes a gateway's books check that ids are unique over gateways, if so configured.
func scope(c redis.UniversalClient, cfg *config.Config) func(gateway string, books ledger.Offerer) admission.Books {
	if cfg.DedupeScope != config.DedupeAll {
		return func(_ string, books ledger.Offerer) admission.Books { return books }
	}
	all := ledger.NewAnywhere(c, cfg.Names(), func(gateway string) *seal.Box {
		return Box(config.Gateway{Name: gateway, Encryption: cfg.Encryption})
	})
	return func(gateway string, books ledger.Offerer) admission.Books { return all.Of(gateway, books) }
}

// keysOf returns a function that names the Redis keys that accept.lua reads for a single job, or for its batch.
func keysOf(gateway string) func(job.Job) []string {
	k := redisdb.NewKeys(gateway)
	return func(j job.Job) []string {
		keys := []string{k.Job(j.ID)}
		if id, _, ok := job.ParseTaskID(j.ID); ok { // the id may be another job's key
			keys = append(keys, k.Job(id))
		}
		if j.Batch != "" {
			keys = append(keys, k.Batch(j.Batch), k.BatchIDs(j.Batch))
		}
		return keys
	}
}

// AmountRule returns where a gateway's payloads have their amount, and its bounds.
func AmountRule(g config.Gateway) job.AmountRule {
	return job.AmountRule{Field: g.Amount.Field, Currency: g.Amount.Currency, Least: g.Amount.Least, Most: g.Amount.Most,
		Required: g.Amount.Required}
}

// Money returns a function that reads a payload's money in the form stored in records, or nil if no amount is
// configured.
func Money(a config.Amount) func(payload []byte) string {
	if a.Field == "" {
		return nil
	}
	return func(payload []byte) string { return producer.Money(payload, a.Field, a.Currency) }
}
