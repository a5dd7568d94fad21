package queue

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// goroutines counts those of a pool, at work or not.
func goroutines() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "(*pool).run(")
}

// idle counts those of them that wait for the next piece of work.
func idle() (n int) {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if head, frames, _ := strings.Cut(stack, "\n"); strings.Contains(head, "[select") && strings.Contains(frames, "(*pool).run(") {
			n++
		}
	}
	return n
}

func TestGoroutinesAreUsedAgainAndGoAtTheEnd(t *testing.T) { // alone: it counts goroutines
	testkit.Within(5*time.Second, 10*time.Millisecond, func() bool { return goroutines() == 0 }) // those of tests before it, with -count
	before, h := goroutines(), newPool()
	var together sync.WaitGroup
	for range 5 {
		var inside sync.WaitGroup
		inside.Add(4)
		for range 4 {
			together.Go(func() {
				h.do(func() {
					inside.Done()
					inside.Wait() // all four at once
				})
			})
		}
		together.Wait()
		testkit.Eventually(t, 5e9, "all goroutines to be free", func() bool { return idle() == goroutines() })
	}
	if n := goroutines() - before; n != 4 {
		t.Errorf("%d goroutines after twenty jobs, four at once", n)
	}
	h.Close()
	h.Close()
	testkit.Eventually(t, 5e9, "all goroutines to go", func() bool { return goroutines() <= before })
}

func TestAPanicComesToWhoAskedForTheJob(t *testing.T) {
	t.Parallel()
	h := newPool()
	defer h.Close()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "poison\n") || !strings.Contains(got, "pool_test.go") {
			t.Errorf("panic %q, want the job's own with its place", got)
		}
	}()
	h.do(func() { panic("poison") })
}
