package redisdb

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// refusals are the replies of a Redis that serves reads but not writes, each with an explanation.
var refusals = map[string]string{
	"OOM":        "it is full (maxmemory)",
	"MISCONF":    "it can't write its disk",
	"READONLY":   "it is a replica",
	"NOREPLICAS": "too few of its replicas are there (min-replicas-to-write)",
}

// Writable checks whether Redis accepts writes for these gateways: in a cluster, on each primary that has one of them.
// It changes nothing. The error is an *Error if Redis answers and refuses, or else any error of a command.
func (db *DB) Writable(ctx context.Context, gateways []string) error {
	if !strings.HasPrefix(db.at.scheme, "redis-cluster") && len(gateways) > 1 {
		gateways = gateways[:1]
	}
	asked, err := db.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, g := range gateways {
			p.SetArgs(ctx, NewKeys(g).Nobodys(), "", redis.SetArgs{Mode: "XX"}) // Redis refuses it like any write, and otherwise finds nothing to set
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
