package redisdb

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// refusals are the answers of a Redis that reads and does not write, each in words.
var refusals = map[string]string{
	"OOM":        "it is full (maxmemory)",
	"MISCONF":    "it can't write its disk",
	"READONLY":   "it is a replica",
	"NOREPLICAS": "too few of its replicas are there (min-replicas-to-write)",
}

// Writable asks whether Redis takes writes for these gateways: of a cluster, each primary that has one of them. It changes nothing. The error is
// an *Error for a Redis that answers and refuses; else any that a command may have.
func (db *DB) Writable(ctx context.Context, gateways []string) error {
	if !strings.HasPrefix(db.at.scheme, "redis-cluster") && len(gateways) > 1 {
		gateways = gateways[:1]
	}
	asked, err := db.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, g := range gateways {
			p.SetArgs(ctx, NewKeys(g).Nobodys(), "", redis.SetArgs{Mode: "XX"}) // Redis refuses it as a write, and finds nothing to set
		}
		return nil
	})
	for _, a := range asked {
		for answer, why := range refusals {
			if says(a.Err(), []string{answer}) {
				return &Error{ErrAway, "Redis takes no writes, so no job goes in or out: " + why, "see what dispatcher doctor says of Redis", a.Err()}
			}
		}
	}
	if err == redis.Nil {
		return nil
	}
	return err
}
