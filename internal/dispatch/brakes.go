package dispatch

import (
	"context"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

// LiftBrakes allows, for a time and in every process at once, calls for which no money limit has room. A time
// of zero ends that.
func LiftBrakes(ctx context.Context, c redis.UniversalClient, g config.Gateway, l ledger.Lift) error {
	if err := Books(c, g).LiftBrakes(ctx, l); err != nil {
		return err
	}
	_ = c.Publish(ctx, redisdb.Wake, g.Name).Err() // if it fails, the next pulse finds the change
	return nil
}
