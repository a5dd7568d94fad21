package bucket

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Permits that are given back are found among thousands, even if several are of one moment, or an announcement has moved them. All others stay, in order.
func TestPermitsThatGoBackAreFoundAmongThousands(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client, keys := testkit.Client(t), redisdb.NewKeys(testkit.Gateway(t))
	list := keys.Pace() + ":w1"
	const announced, pairs = 700, 3000
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // no secret depends on it
		var all [][2]int64
		var flat []any
		edge, units := int64(1_700_000_000_000_000), int64(0)
		for range pairs {
			edge += rng.Int64N(3) // so that some are of one moment
			p := [2]int64{edge, 1 + rng.Int64N(2)}
			all, flat, units = append(all, p), append(flat, p[0], p[1]), units+p[1]
		}
		client.Del(t.Context(), list, keys.Pace())
		client.RPush(t.Context(), list, flat...)
		client.HSet(t.Context(), keys.Pace(), "s", edge, "tat", edge, "g", "shape", "u", "9 0 0 1", "o", "1 5", "n1", units)
		args, want := []any{1, "shape", announced, 1, 0}, int64(0)
		near := rng.IntN(pairs)
		for range 64 {
			i := rng.IntN(pairs)
			if rng.IntN(2) == 0 { // mostly they lie near to one another
				i = max(near-rng.IntN(80), 0)
			}
			i = min(i, len(all)-1)
			slot, at, cost := all[i][0], all[i][0], all[i][1]
			switch rng.IntN(6) {
			case 0: // it stands where its announcement has put it
				slot, at = at-announced, at-announced-1
			case 1: // it is nowhere
				slot, at, cost = slot+1, at+1, 7
			}
			args = append(args, slot, at, cost, "", 5)
			has := func(edge int64) int { // the last of equal ones
				i := len(all) - 1
				for i >= 0 && all[i] != [2]int64{edge, cost} {
					i--
				}
				return i
			}
			found := has(at)
			if found < 0 {
				found = has(slot + announced)
			}
			if found >= 0 {
				all, want, units = slices.Delete(all, found, found+1), want+1, units-cost
			}
		}
		freed, err := releaseScript.Run(t.Context(), client, []string{keys.Pace(), keys.Hold(), keys.Flight(), list}, args...).Int64()
		if err != nil || freed != want {
			t.Fatalf("seed %d: %d went back, want %d: %v", seed, freed, want, err)
		}
		var left []string
		for _, p := range all {
			left = append(left, strconv.FormatInt(p[0], 10), strconv.FormatInt(p[1], 10))
		}
		if got := client.LRange(t.Context(), list, 0, -1).Val(); !slices.Equal(got, left) {
			t.Fatalf("seed %d: other permits are left: %d values, want %d", seed, len(got), len(left))
		}
		if got := client.HGet(t.Context(), keys.Pace(), "n1").Val(); got != fmt.Sprint(units) {
			t.Errorf("seed %d: %s units are counted, want %d", seed, got, units)
		}
	}
}
