package bucket

import (
	"testing"

	"spillway/internal/testkit"
)

func TestLanesAgainstTheModel(t *testing.T) {
	t.Parallel()
	testkit.OneGoroutine(t)
	client := testkit.Client(t)
	for seed := range uint64(testkit.Often(40, 1000)) {
		tr := drawLanes(seed)
		w := newLanesWorld(newWorld(t, client, seed), tr)
		if wrong := w.play(); len(wrong) > 0 {
			t.Fatalf("seed %d: %v\n%+v", seed, wrong, tr)
		}
		t.Logf("seed %d: %d jobs, %d bound, %d called", seed, w.granted, w.misses, len(w.sent))
	}
}
