package bucket

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// The embedded Redis has its own Lua. Every algorithm runs on it, too.
func TestAlgorithmsRunEmbedded(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	limits := []job.Limit{{N: 20, Window: time.Second}, {N: 300, Window: time.Minute}}
	for _, name := range job.Algorithms() {
		alg, err := newAlgorithm(name, limits, 20, 7)
		if err != nil {
			t.Fatal(err)
		}
		tk, m := newTaker(client, name), &model{}
		for i := range int64(100) { // its Lua is slow
			now, n := epoch+i*i*3600, i%5-1
			want, got := ask(t, m, alg, now, n, 1), ask(t, tk, alg, now, n, 1)
			for j := range want {
				if got[j] != want[j] {
					t.Fatalf("%s, step %d: got %v, want %v", name, i, got, want)
				}
			}
		}
	}
}
