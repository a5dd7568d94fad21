package queue

import (
	"context"
	_ "embed" // the scripts are files
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
	straysScript = redisdb.NewScript(straysLua)
	dropScript   = redisdb.NewScript(dropLua)
)

const (
	// leaseGrace is how long past a lease's end a task is left alone: asynq writes leases by its worker's own clock.
	leaseGrace = 5 * time.Second
	mostStrays = 100 // looked at in one go
)

// Stray is a task that is not ours and that nobody will look at again: asynq put it into its retry set or its archive,
// or whoever had pulled it is gone.
type Stray struct {
	TaskID  string
	Payload []byte // the whole message, if it can't be read; empty if there is none
}

// Strays returns the strays of a gateway's queue, at most 100 at a time.
func Strays(ctx context.Context, c redis.UniversalClient, gateway string) ([]Stray, error) {
	k := redisdb.NewKeys(gateway)
	v, err := straysScript.Run(ctx, c, places(k), deadline(), k.TaskPrefix(), mostStrays).StringSlice()
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

// Drop takes a stray out of asynq's keys; park it first. Nothing happens if it is no stray any more.
func Drop(ctx context.Context, c redis.UniversalClient, gateway, taskID string) error {
	k := redisdb.NewKeys(gateway)
	if err := dropScript.Run(ctx, c, append(places(k), k.Task(taskID)), deadline(), taskID).Err(); err != nil {
		return fmt.Errorf("removing stray task %s of %s: %w", taskID, gateway, err)
	}
	return nil
}

func places(k redisdb.Keys) []string {
	return []string{k.Active(), k.Lease(), k.AsynqRetry(), k.AsynqArchive()}
}

// deadline is the end of the youngest lease that is dead for sure, in seconds.
func deadline() int64 { return time.Now().Add(-leaseGrace).Unix() }
