package incarnation

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sign is what the age of a gateway's data says to a person who looks at it.
type Sign struct {
	// Last is when a dispatcher that serves the gateway last gave a sign of life, which each does about once a second. Zero: nobody has ever
	// served it.
	Last time.Time
	// Now is what time it is, on Redis's clock as Last is.
	Now time.Time
	// Format is that of the data (redisdb.Format); empty: from before there were numbers, or there is none.
	Format string
	// Doubt says that the data is doubted; empty if it is not.
	Doubt string
}

// Look returns what the age of a gateway's data says.
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
