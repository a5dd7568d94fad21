package ledger

import (
	"fmt"
	"hash/maphash"
	"testing"

	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// SCAN goes through all parts of the jobs, whatever is beside them, and returns each job once.
func TestEachJobComesOnceInParts(t *testing.T) {
	t.Parallel()
	c := testkit.Client(t)
	one, two, other := testkit.Gateway(t), testkit.Gateway(t), testkit.Gateway(t)
	const jobs = 700
	for i := range jobs {
		for _, g := range []string{one, two, other} {
			if err := c.HSet(t.Context(), redisdb.NewKeys(g).Job(fmt.Sprintf("j:}%d", i)), record.Short("state"), "queued").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, most := range []int64{100, 1 << 40} {
		met := map[string]int{}
		for r, err := range eachJob(t.Context(), []*Books{New(c, Config{Gateway: one}), New(c, Config{Gateway: two})}, false, most) {
			if err != nil {
				t.Fatal(err)
			}
			met[r.Job.Gateway+" "+r.Job.ID]++
		}
		for name, n := range met {
			if n != 1 {
				t.Errorf("%s came %d times", name, n)
			}
		}
		if len(met) != 2*jobs {
			t.Errorf("with %d remembered there are %d jobs, want %d", most, len(met), 2*jobs)
		}
	}
	for range eachJob(t.Context(), []*Books{New(c, Config{Gateway: one})}, false, mostSeen) {
		break // it ends early without a word
	}
}

// SCAN may return a key twice, for example while Redis shrinks its table of keys.
func TestAKeyThatComesTwiceIsReadOnce(t *testing.T) {
	t.Parallel()
	s := jobScan{seed: maphash.MakeSeed(), parts: 1, seen: map[uint64]struct{}{}}
	if !s.first("a") || !s.first("b") || s.first("a") {
		t.Error("a key was read twice, or not at all")
	}
}
