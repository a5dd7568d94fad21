package dispatch

import (
	"context"

	"github.com/redis/go-redis/v9"

	"spillway/internal/record"
	"spillway/internal/redisdb"
)

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
