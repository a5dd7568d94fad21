package e2e

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// flat is how long the memory of a run is watched. From an hour on the growth is judged.
var flat = flag.Duration("flat", 0, "watch the memory of two dispatchers and of Redis for so long: 2h")

// TestMemoryStaysFlat keeps a gateway of 200/s at its limit for the whole time. Some calls fail and are tried again. Some jobs are refused and then discarded. Records and
// outcomes are kept for minutes only, so neither the two dispatchers nor Redis may grow after that. At the end no record is left. The books of a batch stay for an hour
// after its last job, so jobs have batches only in runs that last several times as long.
func TestMemoryStaysFlat(t *testing.T) {
	t.Parallel()
	length, keep, every := max(*flat, 8*time.Second), 3*time.Second, 500*time.Millisecond
	if *flat > 0 {
		keep, every = *flat/24, 5*time.Second
	}
	w := newWorld(t, provider.Config{Limits: []provider.Limit{{N: 200, Window: time.Second}}, Fail: 0.01, DeclineEvery: 100},
		fmt.Sprintf("    leak: {limits: [200/s]}\n    dedupe: %s\n    outcomes: {keep: %[1]s}\n", keep))
	pids := []int{w.dispatcher().cmd.Process.Pid, w.dispatcher().cmd.Process.Pid}
	c, keys := w.redis.Client(), redisdb.NewKeys("stripe")
	began, tick := time.Now(), time.NewTicker(every)
	defer tick.Stop()
	var at []float64 // hours since the warm-up
	memory := map[string][]float64{}
	for fed := 0; time.Since(began) < length; <-tick.C {
		if c.LLen(t.Context(), keys.Pending()).Val() < int64(flatFile()) {
			w.another(fed, length > 5*time.Hour)
			fed++
		}
		if warm := time.Since(began) - length/4; warm > 0 {
			at = append(at, warm.Hours())
			memory["Redis"] = append(memory["Redis"], usedMemory(t, c))
			for i, pid := range pids {
				memory["dispatcher "+strconv.Itoa(i+1)] = append(memory["dispatcher "+strconv.Itoa(i+1)], resident(t, pid))
			}
		}
	}
	for _, whose := range []string{"Redis", "dispatcher 1", "dispatcher 2"} {
		held := memory[whose]
		slope, wrong := slopeOf(at, held)
		mean, hour := meanOf(held), max(1, at[len(at)-1])
		t.Logf("%s: %.2f MiB, %+.3f MiB an hour, ±%.3f (one standard error); least %.2f, most %.2f", whose, mean, slope, wrong, slices.Min(held), slices.Max(held))
		if *flat >= time.Hour && (slope-2*wrong)*hour > max(0.02*mean, 1) {
			t.Errorf("%s grows", whose)
		}
	}
	w.settled(time.Minute)
	w.discardRefused()
	testkit.Eventually(t, time.Minute+2*keep, "the records of all jobs to go", func() bool {
		left := 0
		for it := c.Scan(t.Context(), 0, keys.JobPrefix()+"*", 1000).Iterator(); it.Next(t.Context()); {
			left++
		}
		return left == 0
	})
	w.strict()
	s := w.provider.Stats()
	t.Logf("%d calls, %d answers 500; fullest windows %v of %v", s.Calls, s.Failed, s.MaxInWindow, s.Limits)
}

// flatFile returns the number of jobs of a file: more than are called between two looks at the queue.
func flatFile() int {
	if *flat > 0 {
		return 1500
	}
	return 300
}

// another enqueues one more file, and discards the refused jobs now and then.
func (w *world) another(nth int, batch bool) {
	w.t.Helper()
	var b strings.Builder
	for i := range flatFile() {
		fmt.Fprintf(&b, `{"id":"inv-%05d-%04d","payload":{"amount":%d,"currency":"EUR"}}`+"\n", nth, i, 100+i)
	}
	args := []string{"-g", "stripe", "-f", w.file("flat.ndjson", b.String()), "-q"}
	if batch {
		args = append(args, "--batch", fmt.Sprintf("flat-%05d", nth))
	}
	w.ok("enqueue", args...)
	if nth%6 == 5 {
		w.discardRefused()
	}
}

func (w *world) discardRefused() {
	w.t.Helper()
	w.ok("dispatcher", "dlq", "discard", "-g", "stripe", "--reason", "refused", "--why", "the test is done with them", "--yes")
}

const mib = 1 << 20

// usedMemory returns how much memory Redis has in use, in MiB.
func usedMemory(t *testing.T, c redis.UniversalClient) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(c.InfoMap(t.Context(), "memory").Item("Memory", "used_memory"), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n / mib
}

// resident returns how much of a process is in memory, in MiB.
func resident(t *testing.T, pid int) float64 {
	t.Helper()
	fields := strings.Fields(read(t, fmt.Sprintf("/proc/%d/statm", pid)))
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return float64(n*os.Getpagesize()) / mib
}

func meanOf(of []float64) (mean float64) {
	for _, v := range of {
		mean += v / float64(len(of))
	}
	return mean
}

// slopeBlocks is the number of means that replace a series before a line is fitted. Neighbouring samples are alike, and these means hardly are: so their scatter gives the error.
const slopeBlocks = 20

// slopeOf fits a line to a series by least squares, and returns its slope and the standard error.
func slopeOf(x, y []float64) (slope, wrong float64) {
	n := min(slopeBlocks, len(x))
	var bx, by []float64
	for i := range n {
		from, to := i*len(x)/n, (i+1)*len(x)/n
		bx, by = append(bx, meanOf(x[from:to])), append(by, meanOf(y[from:to]))
	}
	mx, my := meanOf(bx), meanOf(by)
	var xx, xy, rest float64
	for i := range n {
		xx += (bx[i] - mx) * (bx[i] - mx)
		xy += (bx[i] - mx) * (by[i] - my)
	}
	slope = xy / xx
	for i := range n {
		off := by[i] - my - slope*(bx[i]-mx)
		rest += off * off
	}
	return slope, math.Sqrt(rest / float64(n-2) / xx)
}

// A leak that is small beside the scatter is found, and no leak is found where there is none.
func TestASlopeIsToldFromScatter(t *testing.T) {
	t.Parallel()
	for _, leak := range []float64{0, 2} {
		var x, y []float64
		for i := range 1000 {
			x = append(x, float64(i)/1000)
			y = append(y, 100+leak*x[i]+5*math.Sin(float64(i*i)))
		}
		slope, wrong := slopeOf(x, y)
		if math.Abs(slope-leak) > 3*wrong || wrong > 0.6 || leak > 0 && slope < 3*wrong {
			t.Errorf("a leak of %v: %.3f ±%.3f", leak, slope, wrong)
		}
	}
}
