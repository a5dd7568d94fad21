package dispatch

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/redisdb"
)

// LiftBrakes lets calls go that no limit of money has room for, for a time, on every process at once; zero ends that. lost says that what Redis has lost is not charged any more.
func LiftBrakes(ctx context.Context, c redis.UniversalClient, g config.Gateway, d time.Duration, lost bool, who, why string) error {
	if err := Books(c, g).LiftBrakes(ctx, d, lost, who, why); err != nil {
		return err
	}
	_ = c.Publish(ctx, redisdb.Wake, g.Name).Err() // else the next look at the gateway finds it
	return nil
}
