package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// TestAFirstJobDoesNotWaitForAPoll offers jobs one by one to an idle gateway. It measures the time from the write of enqueue to the arrival at
// the provider.
func TestAFirstJobDoesNotWaitForAPoll(t *testing.T) {
	w := newWorld(t, provider.Config{Limits: perSecond100}, "    leak: {limits: [100/s]}\n")
	r := w.dispatcher("--log-level", "info")
	testkit.Eventually(t, 10*time.Second, "the dispatcher to serve", func() bool { return len(r.text()) > 0 && w.status().Queued == 0 })
	cfg, err := config.Load(w.config, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	db, err := dispatch.Open(context.Background(), cfg, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	door := dispatch.Door(db.Client, cfg, 0)
	jobs := 60
	if *soak > 0 {
		jobs = 100
	}
	waits := make([]time.Duration, 0, jobs)
	for i := range jobs {
		written := time.Now()
		if _, err := door.Admit(t.Context(), "stripe", []job.Job{{ID: fmt.Sprintf("first-%03d", i)}}, admission.Park); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 5*time.Second, "the call", func() bool { return w.provider.Stats().Calls == i+1 })
		waits = append(waits, time.UnixMicro(w.provider.Calls()[i].At).Sub(written))
		testkit.Eventually(t, 5*time.Second, "the gateway to be idle", func() bool {
			seen, err := dispatch.Look(t.Context(), db.Client, cfg.Gateways[0])
			return err == nil && seen.Done == int64(i+1) && seen.InFlight == 0
		})
		w.until(written.Add(50 * time.Millisecond)) // the last call's slot is past, with its spacing
	}
	slices.Sort(waits)
	t.Logf("from enqueue's write to the call: p50 %v, p99 %v, most %v", waits[jobs/2], waits[jobs*99/100], waits[jobs-1])
	// A gateway that nobody wakes is polled every 0.8 s: then one job in five waits 160 ms or less, and one in two 400 ms or less. A busy machine adds the same
	// to all waits, or much to some of them: it is enough that one of the two is clearly shorter.
	woken := waits[jobs/5] <= 100*time.Millisecond || waits[jobs/2] <= 240*time.Millisecond
	if !woken || *soak > 0 && waits[jobs/2] > 200*time.Millisecond {
		t.Errorf("a first job waits %v (median), and one in five waits up to %v: nobody wakes the gateway", waits[jobs/2], waits[jobs/5])
	}
}

// cpu returns the processor time that a process has used.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	fields := strings.Fields(read(t, fmt.Sprintf("/proc/%d/stat", pid)))
	ticks := 0
	for _, i := range []int{13, 14} { // user and system, in hundredths of a second
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// TestIdleGatewaysCostNextToNothing has one process serve 200 gateways that have nothing to do. The processor time that it uses depends little on what else runs.
func TestIdleGatewaysCostNextToNothing(t *testing.T) {
	if *soak == 0 {
		t.Parallel()
	}
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n")
	var b strings.Builder
	fmt.Fprintf(&b, "redis: %s\ngateways:\n", w.redis.URL())
	for i := range 200 {
		fmt.Fprintf(&b, "  g%03d:\n    request: {url: %s, idempotency_prefix: g%03[1]d-}\n    leak: {limits: [100/s]}\n", i, w.url)
	}
	w.config = w.file("dispatcher.yaml", b.String())
	r := w.dispatcher()
	testkit.Eventually(t, 20*time.Second, "all gateways to be served", func() bool { return strings.Contains(r.text(), "serving more gateways") })
	length := 3 * time.Second
	if *soak > 0 { // whole rounds of the looks that come every ten seconds
		length = max(*soak/3, 10*time.Second).Truncate(10 * time.Second)
	}
	w.until(time.Now().Add(max(*soak/5, 2*time.Second))) // the start is over: each gateway's books were looked through once
	before, began := cpu(t, r.cmd.Process.Pid), time.Now()
	w.until(began.Add(length))
	share := float64(cpu(t, r.cmd.Process.Pid)-before) / float64(time.Since(began))
	most := 0.3 // with the rest of a busy machine's start, and with the race detector
	if *soak > 0 {
		most = 0.02
	}
	t.Logf("200 idle gateways take %.1f %% of a core", 100*share)
	if share > most {
		t.Errorf("200 idle gateways take %.1f %% of a core, want at most %.0f %%", 100*share, 100*most)
	}
}
