package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/doctor"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// apiPatience is how long a request waits for an unreachable Redis before it is answered with an error: long
// enough for a broken connection to be replaced.
const apiPatience = time.Second

// api returns the HTTP side of run: cfg, with the API's operations. Jobs may be posted to every configured
// gateway, even to those that other processes serve.
func (s served) api(cfg httpapi.Config, x *doctor.Examiner) *httpapi.API {
	cfg.Log = s.log
	cfg.Gateways = offered(s.db.Client, s.file.Load())
	cfg.Door = s.door
	cfg.State = func(ctx context.Context, gateway, id string) (job.State, error) {
		found, err := s.found(ctx, gateway, id)
		return found.Record.State, err
	}
	cfg.Job = func(ctx context.Context, gateway, id string) (any, error) {
		found, err := s.found(ctx, gateway, id)
		if err != nil {
			return nil, err
		}
		return found.Job(ctx)
	}
	cfg.Outcomes = s.outcomes
	cfg.Operations, cfg.Once = s.operations(x), onceKept{redisdb.NewOnce(s.db.Client)}
	return httpapi.New(cfg)
}

// found returns the record of a job of one gateway.
func (s served) found(ctx context.Context, gateway, id string) (desk.Found, error) {
	cfg := s.file.Load()
	g, ok := cfg.Gateway(gateway)
	if !ok {
		return desk.Found{}, dispatch.NoGateway(cfg, gateway)
	}
	return desk.New(s.db.Client, []config.Gateway{g}).FindOne(ctx, id)
}

// offered returns what callers are told of each gateway's admission.
func offered(c redis.UniversalClient, cfg *config.Config) map[string]httpapi.Gateway {
	all := make(map[string]httpapi.Gateway, len(cfg.Gateways))
	for _, g := range cfg.Gateways {
		all[g.Name] = httpapi.Gateway{MaxCost: dispatch.MaxCost(g), Amount: dispatch.AmountRule(g), Cards: g.Pan, Policies: policies(dispatch.Follow(c, g))}
	}
	return all
}

func policies(of *dispatch.Follower) func(context.Context) []httpapi.Policy {
	return func(ctx context.Context) (all []httpapi.Policy) {
		a := of.Admission(ctx)
		for _, l := range a.Limits {
			all = append(all, policy(a, l))
		}
		return all
	}
}

// policy returns a limit as a quota and the time in which it comes back. For a bucket, the quota is its burst,
// which comes back at the limit's rate.
func policy(a config.Admission, l job.Limit) httpapi.Policy {
	if !job.Bursts(a.Algorithm) {
		return httpapi.Policy{Name: l.String(), Quota: l.N, Window: l.Window}
	}
	whole := float64(a.Burst) / float64(l.N) * float64(l.Window)
	return httpapi.Policy{Name: l.String(), Quota: a.Burst, Window: time.Duration(whole)}
}
