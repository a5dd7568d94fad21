package dispatch

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/incarnation"
)

// Restored says that Redis was restored to an older state of a gateway's data, so that what it does not know may
// have been accepted all the same.
type Restored struct {
	// From and Till are the time that the data lacks; zero if it lacks none that matters.
	From, Till time.Time
	// Doubt says what to do, if the restore is not confirmed yet; else it is empty.
	Doubt string
}

// RestoredOf returns the last restore of a gateway's data. A confirmed one matters for as long as ids of that time
// would be known.
func RestoredOf(ctx context.Context, c redis.UniversalClient, g config.Gateway) (Restored, error) {
	s, err := incarnation.Look(ctx, c, g.Name)
	if err != nil || s.Doubt == "" && s.Now.Sub(s.LacksTill) > g.Dedupe {
		return Restored{}, err
	}
	return Restored{s.LacksFrom, s.LacksTill, s.Doubt}, nil
}
