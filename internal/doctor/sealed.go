package doctor

import (
	"context"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// mostOpened is how many payloads are opened as a sample: each may be a megabyte.
const mostOpened = 20

// sealed checks that the payloads of a few waiting jobs can be opened with the configured keys.
func (x *examination) sealed(ctx context.Context, c redis.UniversalClient, g config.Gateway, records []job.Record) error {
	books := dispatch.Books(c, g)
	looked, shut := 0, map[string]int{}
	for _, r := range records {
		if looked == mostOpened {
			break
		}
		if r.State == "" || r.State == job.Done || r.State == job.Discarded {
			continue
		}
		looked++
		whole, ok, err := books.Find(ctx, r.Job.ID)
		if err != nil {
			return err
		}
		if ok && whole.Unopened != nil {
			shut[whole.Unopened.Error()]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(shut)) {
		x.add(fail("payloads", g.Name, "give run and enqueue every key that has sealed a job which still waits; docs/configuration.md says what else it may be",
			"of %d jobs looked at, %d can't be called: %s", looked, shut[why], why))
	}
	return nil
}
