package queue

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

//go:embed strays.lua
var straysLua string

//go:embed drop.lua
var dropLua string

var (
	straysScript = redisdb.NewScript(redisdb.NowLua, straysLua)
	dropScript   = redisdb.NewScript(redisdb.NowLua, dropLua)
)

const (
	// leaseGrace is how long after the end of a lease a task is left alone: a heartbeat may be late.
	leaseGrace = 5 * time.Second
	mostStrays = 100 // per call
)

// Stray is a foreign task that nothing will handle any more: asynq put it into its retry set or archive, or the
// worker that pulled it is gone.
type Stray struct {
	TaskID  string
	Payload []byte // the whole message if it can't be read; empty if there is none
}

// Strays returns up to 100 strays of a gateway's queue.
func Strays(ctx context.Context, c redis.UniversalClient, gateway string) ([]Stray, error) {
	k := redisdb.NewKeys(gateway)
	v, err := straysScript.Run(ctx, c, places(k), leaseGrace.Seconds(), k.TaskPrefix(), mostStrays).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("looking for stray tasks of %s: %w", gateway, err)
	}
	var all []Stray
	for i := 0; i+1 < len(v); i += 2 {
		s := Stray{TaskID: v[i], Payload: []byte(v[i+1])}
		if m, ok := parseMessage(s.Payload); ok {
			s.Payload = m.payload
		}
		all = append(all, s)
	}
	return all, nil
}

// Drop removes a stray from asynq's keys; park it first. If it is no longer a stray, Drop does nothing.
func Drop(ctx context.Context, c redis.UniversalClient, gateway, taskID string) error {
	k := redisdb.NewKeys(gateway)
	if err := dropScript.Run(ctx, c, append(places(k), k.Task(taskID)), leaseGrace.Seconds(), taskID).Err(); err != nil {
		return fmt.Errorf("removing stray task %s of %s: %w", taskID, gateway, err)
	}
	return nil
}

func places(k redisdb.Keys) []string {
	return []string{k.Active(), k.Lease(), k.AsynqRetry(), k.AsynqArchive()}
}
