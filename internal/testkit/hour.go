package testkit

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// AmidHour waits while Redis's clock is in the last minute of an hour. A test that counts by the hour calls it first, so that the hour
// does not end in the middle of the test.
func AmidHour(t testing.TB, c redis.UniversalClient) {
	t.Helper()
	EventuallyEvery(t, time.Second, 3*time.Minute, "the next hour to begin", func() bool {
		now, err := c.Time(context.Background()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return now.UTC().Minute() < 59
	})
}
