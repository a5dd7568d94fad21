package incarnation

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// LastSign is when a dispatcher that serves the gateway last gave a sign of life, which each does about once a second, and what time it is
// now, both on Redis's clock. A zero last means that nobody has ever served it.
func LastSign(ctx context.Context, c redis.UniversalClient, gateway string) (last, now time.Time, err error) {
	d, err := look(ctx, c, gateway, 0)
	if err != nil {
		return last, now, err
	}
	if d.at > 0 {
		last = time.UnixMicro(d.at).UTC()
	}
	return last, time.UnixMicro(d.now).UTC(), nil
}
