package dispatch

import (
	"context"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

// LiftBrakes lets calls go that no limit of money has room for, for a time, on every process at once; zero ends that.
func LiftBrakes(ctx context.Context, c redis.UniversalClient, g config.Gateway, l ledger.Lift) error {
	if err := Books(c, g).LiftBrakes(ctx, l); err != nil {
		return err
	}
	_ = c.Publish(ctx, redisdb.Wake, g.Name).Err() // else the next look at the gateway finds it
	return nil
}
