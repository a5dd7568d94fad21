// Package dispatch wires the steps together for the gateways of a configuration: the books and the door that both
// programs use, and the running dispatcher. It decides nothing; who may call whom is drawn in gateway.go.
package dispatch

import (
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/bucket"
	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/ledger"
	"spillway/internal/producer"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
)

// algorithm returns the admission check of a gateway. It panics on what config refuses: both know the same bounds.
func algorithm(g config.Gateway) bucket.Algorithm {
	a := g.Admission
	alg, err := bucket.NewAlgorithm(a.Algorithm, limits(a.Limits), a.Burst, a.Precision)
	if err != nil {
		panic("admission of gateway " + g.Name + ": " + err.Error())
	}
	return alg
}

func limits(from []config.Limit) []bucket.Limit {
	to := make([]bucket.Limit, len(from))
	for i, l := range from {
		to[i] = bucket.Limit{N: l.N, Window: l.Window}
	}
	return to
}

// Books returns the books of one gateway.
func Books(c redis.UniversalClient, g config.Gateway) *ledger.Books {
	return ledger.New(c, bookkeeping(g))
}

func bookkeeping(g config.Gateway) ledger.Config {
	return ledger.Config{
		Gateway:     g.Name,
		Bucket:      algorithm(g),
		Encode:      queue.NewEncoder(g.Name).Encode,
		InOrder:     g.Replay == config.ReplayAuto,
		Keys:        g.Request.IdempotencyHeader != "",
		KeyLifetime: g.Request.KeyLifetime,
		Attempts:    g.Retry.Attempts,
		Dedupe:      g.Dedupe,
		Money:       Money(g.Amount),
		Box:         Box(g),
	}
}

// Store returns one gateway's dead letters.
func Store(c redis.UniversalClient, g config.Gateway) *deadletter.Store {
	return deadletter.New(c, g.Name).Sealing(Box(g))
}

// Box returns what seals and opens the payloads of a gateway; nil where the configuration has no encryption.
func Box(g config.Gateway) *seal.Box {
	if g.Encryption == nil {
		return nil
	}
	keys := make([]seal.Key, len(g.Encryption.Keys))
	for i, k := range g.Encryption.Keys {
		keys[i] = seal.Key{ID: k.ID, Secret: []byte(k.Secret.Reveal())}
	}
	return seal.New(g.Name, g.Encryption.Active, keys)
}

// MaxCost is the largest cost that a job of this gateway may have: every limit of admission and leak can grant it.
func MaxCost(g config.Gateway) int64 {
	most := algorithm(g).MaxCost()
	for _, l := range g.Leak.Limits {
		most = min(most, l.N)
	}
	return most
}

// Door returns the way in to every gateway of a configuration. patience is how long to go on while Redis is away.
func Door(c redis.UniversalClient, cfg *config.Config, patience time.Duration) *admission.Door {
	gateways := make(map[string]admission.Gateway, len(cfg.Gateways))
	for _, g := range cfg.Gateways {
		gateways[g.Name] = admission.Gateway{Books: Books(c, g), MaxCost: MaxCost(g), Money: Money(g.Amount)}
	}
	return admission.New(admission.Config{
		Gateways: gateways, Digest: producer.Digest, Away: redisdb.Away, Patience: patience, Clock: clock.Real{},
	})
}

// Money returns what reads a payload's money as a record has it, or nil where the configuration names no amount.
func Money(a config.Amount) func(payload []byte) string {
	if a.Field == "" {
		return nil
	}
	return func(payload []byte) string { return producer.Money(payload, a.Field, a.Currency) }
}
