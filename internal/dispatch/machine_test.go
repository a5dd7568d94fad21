package dispatch

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

func noDescriptor() error {
	return fmt.Errorf("connecting failed: %w: %w", syscall.EMFILE, job.ErrLocal)
}

// fitness returns the state of one process's machine for one gateway, and its log.
func fitness() (*ownMachine, *bytes.Buffer) {
	var log bytes.Buffer
	return newMachine("g", newMachineMetrics(nil), slog.New(slog.NewTextHandler(&log, nil)), func() {}), &log
}

// A fault that returns within a while is logged once, with what to do. The tests of the machine come at growing intervals.
func TestAFaultThatComesBackIsOneFault(t *testing.T) {
	t.Parallel()
	m, log := fitness()
	m.called(nil)
	m.called(syscall.ECONNREFUSED)
	if m.unfit() != nil {
		t.Fatal("what is not a fault of this machine takes it out of service")
	}
	var waits []time.Duration
	for range 5 {
		m.called(noDescriptor())
		m.called(noDescriptor())
		if m.unfit() == nil {
			t.Fatal("in service")
		}
		waits = append(waits, m.next())
		m.back()
	}
	if got := fmt.Sprint(waits); got != "[1s 2s 4s 5s 5s]" {
		t.Errorf("tried again after %s", got)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "LimitNOFILE") || !strings.Contains(log.String(), "too many open files") {
		t.Errorf("%d errors in the log:\n%s", n, log)
	}
	m.since = m.since.Add(-fitFor)
	m.called(noDescriptor())
	if n := strings.Count(log.String(), "level=ERROR"); n != 2 || m.next() != outFirst {
		t.Errorf("a fault after a while is a new one: %d errors in the log:\n%s", n, log)
	}
	if n := testutil.ToFloat64(m.faults); n != 11 {
		t.Errorf("%v faults were counted", n)
	}
}

// A process whose machine can't call pulls no jobs, and returns to service without help.
func TestAnUnfitProcessPullsNothing(t *testing.T) {
	t.Parallel()
	plainly(t, quick, func(t *testing.T, r *rig) {
		d := r.serve()
		u := d.units()[0]
		began := time.Now()
		u.machine.called(noDescriptor())
		if err := d.Fit(); err == nil || !strings.Contains(err.Error(), u.name) || !strings.Contains(err.Error(), "too many open files") {
			t.Errorf("fit: %v", err)
		}
		if _, err := (workerPacer{u.pacer, u.now().cfg.Circuit, u.machine, u.tokens()}).Take(t.Context(), 1, ""); err == nil {
			t.Error("a job that was pulled past the pacer gets a slot")
		}
		r.put(0, 30)
		if s, err := u.pacer.Take(t.Context(), 1, ""); err != nil || !(queuePacer{u.pacer, u.data, u.machine, u.tokens, &u.feedHold}).Passed(s) {
			t.Errorf("a slot in hand is used: %v", err)
		}
		testkit.Eventually(t, 20*time.Second, "all to be done", func() bool { return r.standing(0).Done == 30 })
		if d.Fit() != nil {
			t.Error("out of service after calls of its own")
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if first := r.calls[0].Sub(began); first < outFirst {
			t.Errorf("it called %v after it had taken itself out of service, want at least %v", first, outFirst)
		}
	})
}
