package incarnation

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sign is what the age of a gateway's data means to an operator.
type Sign struct {
	// Last is when a dispatcher of the gateway last gave a sign of life, which each does about once a second. Zero: it
	// was never served.
	Last time.Time
	// Now is the present time, on Redis's clock like Last.
	Now time.Time
	// Format is that of the data (redisdb.Format); empty: older than the first version, or no data.
	Format string
	// Doubt says that the data is in doubt; empty if it is not.
	Doubt string
}

// Look reads the Sign of a gateway's data.
func Look(ctx context.Context, c redis.UniversalClient, gateway string) (Sign, error) {
	d, err := look(ctx, c, gateway, 0)
	if err != nil {
		return Sign{}, err
	}
	s := Sign{Now: time.UnixMicro(d.now).UTC(), Format: d.format}
	if d.at > 0 {
		s.Last = time.UnixMicro(d.at).UTC()
	}
	if d.doubt.from != 0 {
		s.Doubt = fmt.Sprintf("Redis was restored to %s: check, then start one dispatcher with --after-restore", clockTime(d.doubt.from))
	}
	return s, nil
}
