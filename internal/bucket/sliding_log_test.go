package bucket

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strconv"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// A log of many chunks, with refunds and gaps across their borders, agrees with its model.
func TestLongLogIsItsModel(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	tk, m, now := newTaker(testkit.Client(t), testkit.Gateway(t)), &model{}, epoch
	alg := SlidingLog{[]job.Limit{{N: 90, Window: time.Second}, {N: 400, Window: 10 * time.Second}}}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 4000 {
		now += rng.Int64N(20_000)
		if rng.IntN(400) == 0 {
			now += rng.Int64N(20_000_000)
		}
		n := rng.Int64N(3)
		if rng.IntN(30) == 0 {
			n = -rng.Int64N(100)
		}
		want := ask(t, m, alg, now, n, 1)
		if got := ask(t, tk, alg, now, n, 1); !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d, take %d: got %v, want %v", i, n, got, want)
		}
	}
}

// A run reads a few chunks of the log, however long it is and however much of it has lapsed.
func TestLongLogIsReadLittle(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client := testkit.Server(t).Client()
	ctx := context.Background()
	alg := SlidingLog{[]job.Limit{{N: 3000, Window: time.Second}, {N: 100_000, Window: time.Hour}}}
	tk := newTaker(client, testkit.Gateway(t))
	for i := range int64(3000) {
		ask(t, tk, alg, epoch+i*100, 1, 1)
	}
	for _, c := range []struct{ now, n, cost int64 }{{epoch + 300_000, 0, 3000}, {epoch + 800_000, 1, 2000}, {epoch + 3_599_900_000, 1, 1}, {epoch + 8_000_000_000, 1, 1}} {
		before := reads(t, client.Info(ctx, "commandstats").Val())
		ask(t, tk, alg, c.now, c.n, c.cost)
		if n := reads(t, client.Info(ctx, "commandstats").Val()) - before; n > 30 {
			t.Errorf("%d reads at %d", n, c.now-epoch)
		}
	}
}

var hgets = regexp.MustCompile(`cmdstat_hget:calls=(\d+)`)

func reads(t *testing.T, stats string) int {
	t.Helper()
	found := hgets.FindStringSubmatch(stats)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(fmt.Errorf("commandstats: %w", err))
	}
	return n
}
