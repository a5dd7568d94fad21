package bucket

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

// Stop is a time in which a gateway was called little or not at all: an outage, or before a resume. From is zero if
// it is unknown. To is zero while it lasts.
type Stop struct{ From, To time.Time }

// Stops returns the latest outages of a gateway, oldest first, and the last pause that was ended.
func Stops(ctx context.Context, c redis.UniversalClient, gateway string) ([]Stop, error) {
	v, err := c.HMGet(ctx, redisdb.NewKeys(gateway).Hold(), "outages", "paused", "paused_at").Result()
	if err != nil {
		return nil, fmt.Errorf("when %s was held could not be read: %w", gateway, err)
	}
	text, _ := v[0].(string)
	all := stopsOf(text)
	if at, _ := v[2].(string); v[1] == "0" {
		all = append(all, Stop{To: micros(at)})
	}
	return all, nil
}

// stopsOf reads outages as outage.lua writes them, "from:to from:to …".
func stopsOf(outages string) (all []Stop) {
	for one := range strings.FieldsSeq(outages) {
		from, to, _ := strings.Cut(one, ":")
		all = append(all, Stop{micros(from), micros(to)})
	}
	return all
}

// micros reads a moment in µs; zero if it is none.
func micros(text string) time.Time {
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
