package dispatch

import (
	"context"
	_ "embed" // for the script
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"spillway/internal/deadletter"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

//go:embed join.lua
var joinLua string

var joinScript = redisdb.NewScript(joinLua)

// joined is the audit entry that says how the chain of the new name ended.
const joined = "trail joined"

// join appends the audit trail of the new name to that of the old one. The new name's chain ends there: an
// entry records its last link, which logs and exports contain too, and any fault found in it.
func (m Moving) join(ctx context.Context) error {
	from, to := redisdb.NewKeys(m.Old), redisdb.NewKeys(m.New.Name)
	for {
		v, err := deadletter.New(m.Redis, m.New.Name).Verify(ctx, deadletter.Head{})
		if err != nil {
			return err
		}
		head, err := m.Redis.Get(ctx, to.Head()).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		var line []byte
		if head != "" {
			act := m.Act
			act.What, act.Why = joined, fmt.Sprintf("the chain of %s ended with link %d, %s, and goes on in that of %s", m.New.Name, v.Head.Links, v.Head.Hash, m.Old)
			if v.Faults > 0 {
				act.Why += fmt.Sprintf("; it had %d faults: %s", v.Faults, v.Findings[0])
			}
			if act.At, err = m.Redis.Time(ctx).Result(); err != nil {
				return err
			}
			act.At = act.At.UTC()
			act.Ended = &act.At
			if line, err = json.Marshal(act.Clean()); err != nil {
				return err
			}
		}
		done, err := joinScript.Run(ctx, m.Redis, []string{from.Trail(), to.Trail(), from.Journal(), to.Journal(), from.Head(), to.Head()}, head, line).Int()
		if err != nil || done != 2 {
			return err
		}
	}
}

// readCharged returns, for each of some jobs that may have been charged, the digest of its call
// (job.SentDigest), or "" if unknown.
func readCharged(ctx context.Context, c redis.UniversalClient, k redisdb.Keys, ids []string) (digests []string, err error) {
	fields := record.Shorts([]string{"may_have_charged", "sent_digest"})
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range ids {
			p.HMGet(ctx, k.Job(id), fields...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, cmd := range cmds {
		seen := cmd.(*redis.SliceCmd).Val()
		if seen[0] == nil {
			continue
		}
		digest, _ := seen[1].(string)
		digests = append(digests, digest)
	}
	return digests, nil
}
