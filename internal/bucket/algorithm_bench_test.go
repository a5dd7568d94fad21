package bucket

import (
	"context"
	"fmt"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// BenchmarkAdmission compares a round trip of each algorithm, alone and for 100 jobs at once, with that of a SET.
func BenchmarkAdmission(b *testing.B) {
	client := testkit.Client(b)
	b.Run("SET", func(b *testing.B) {
		for b.Loop() {
			if err := client.Set(context.Background(), "bench", "x", 0).Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, name := range job.Algorithms() {
		for _, n := range []int64{1, 100} {
			alg, err := NewAlgorithm(name, []job.Limit{{N: 1_000_000, Window: time.Second}, {N: 50_000_000, Window: time.Minute}}, 60_000_000, 60)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				tk := newTaker(client, testkit.Gateway(b))
				for b.Loop() {
					if _, err := tk.take(alg, 0, n, 1); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
