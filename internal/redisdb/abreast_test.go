package redisdb_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

func TestManyLooksShareAFewRoundTrips(t *testing.T) {
	t.Parallel()
	db, _, count := openTogether(t, redisdb.Options{})
	const all = 1000
	for range 2 { // the second time Redis knows the script
		count.n.Store(0)
		var right atomic.Int64
		redisdb.Abreast(t.Context(), db.Client, all, func(c redis.UniversalClient, i int) {
			own := fmt.Sprint("{g", i, "}")
			got, err := echo.Run(t.Context(), c, []string{own}, i, "").Int()
			text, err2 := c.HGetAll(t.Context(), own+"h").Result()
			_, err3 := c.HGet(t.Context(), own+"h", "f").Result()
			if i%2 == 0 {
				_, err3 = c.LIndex(t.Context(), own+"l", -1).Result()
			}
			if err == nil && err2 == nil && got == i && len(text) == 0 && errors.Is(err3, redis.Nil) {
				right.Add(1)
			}
		})
		if n := right.Load(); n != all {
			t.Errorf("%d of %d got their own answers", n, all)
		}
		if n := count.n.Load(); n > 24 {
			t.Errorf("%d looks of three commands took %d round trips, want 24 at most", all, n)
		}
	}
}

func TestALookThatFailsFailsForItself(t *testing.T) {
	t.Parallel()
	db, c, _ := openTogether(t, redisdb.Options{})
	if err := c.Set(t.Context(), "spillway:{g7}:rate", "not a hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 20)
	redisdb.Abreast(t.Context(), db.Client, len(errs), func(c redis.UniversalClient, i int) {
		if i == 3 {
			return // asks nothing, and does not delay the others
		}
		_, errs[i] = c.HGetAll(t.Context(), redisdb.NewKeys(fmt.Sprint("g", i)).Rate()).Result()
		if i == 5 { // another failure in the same round trip, before the damaged one
			errs[i] = c.HGet(t.Context(), "{g5}nothing", "f").Err()
		}
	})
	for i, err := range errs {
		damaged, is := errors.AsType[*redisdb.DamagedError](err)
		switch {
		case i == 7 && (!is || damaged.Keys[0].Name != "spillway:{g7}:rate"):
			t.Errorf("the damaged key is not named: %v", err)
		case i == 5 && !errors.Is(err, redis.Nil):
			t.Errorf("a field that is not there: %v", err)
		case i != 7 && i != 5 && err != nil:
			t.Errorf("look %d failed with another one's error: %v", i, err)
		}
	}
}

func TestLooksAtARedisThatIsAwayFailAll(t *testing.T) {
	t.Parallel()
	db, _, _ := openTogether(t, redisdb.Options{})
	_ = db.Close()
	var failed atomic.Int64
	redisdb.Abreast(t.Context(), db.Client, 300, func(c redis.UniversalClient, i int) {
		if echo.Run(t.Context(), c, []string{"k"}, i, "").Err() != nil && c.HGetAll(t.Context(), "h").Err() != nil {
			failed.Add(1)
		}
	})
	if n := failed.Load(); n != 300 {
		t.Errorf("%d of 300 looks heard that the client is closed", n)
	}
}
