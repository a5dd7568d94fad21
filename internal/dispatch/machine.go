package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

const (
	// outFirst and outMost bound the pause before a process tests its machine again: as long as between probes
	// of a gateway that is down.
	outFirst = time.Second
	outMost  = 5 * time.Second
	// fitFor is how long a machine must have worked before its next fault counts as a new one.
	fitFor = 30 * time.Second
)

// errUnfit is for the worker only: the job goes back to the queue, and another process pulls it.
var errUnfit = errors.New("this process is out of service: its machine can't call the gateway")

// ownMachine tracks whether this process can call its gateway. If a fault of the machine prevents it, the
// process takes itself out of service: it pulls nothing, and other processes get all slots.
type ownMachine struct {
	log    *slog.Logger
	faults prometheus.Counter
	out    prometheus.Gauge
	failed func() // wakes the minder

	mu    sync.Mutex
	why   error         // nil: in service
	fit   chan struct{} // closed when it is in service again
	since time.Time     // when it returned to service
	pause time.Duration // until the next test
}

// machineMetrics are the metrics of machine faults.
type machineMetrics struct {
	faults *prometheus.CounterVec
	out    *prometheus.GaugeVec
}

func newMachineMetrics(reg prometheus.Registerer) machineMetrics {
	m := machineMetrics{
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_local_faults_total",
			Help: "Calls that could not be made by a fault of this machine: no descriptor, port or memory, no way out, no name server."}, []string{"gateway"}),
		out: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spillway_out_of_service",
			Help: "1 while this process pulls no jobs of the gateway, since its machine can't call it."}, []string{"gateway"}),
	}
	if reg != nil {
		reg.MustRegister(m.faults, m.out)
	}
	return m
}

func (m machineMetrics) forget(gateway string) {
	m.faults.DeleteLabelValues(gateway)
	m.out.DeleteLabelValues(gateway)
}

func newMachine(gateway string, m machineMetrics, log *slog.Logger, failed func()) *ownMachine {
	return &ownMachine{log: log, faults: m.faults.WithLabelValues(gateway), out: m.out.WithLabelValues(gateway), failed: failed}
}

// called takes the result of a call into account.
func (m *ownMachine) called(err error) {
	if !errors.Is(err, job.ErrLocal) {
		return
	}
	m.faults.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why != nil {
		return
	}
	m.why, m.fit = err, make(chan struct{})
	m.out.Set(1)
	m.failed()
	if m.pause > 0 && time.Since(m.since) < fitFor {
		return // already logged
	}
	m.pause = outFirst
	m.log.Error("this machine can't call the gateway: this process pulls no more of its jobs until it can, and the others go on",
		"error", err, "hint", remedy(err))
}

// remedy says what to do about a machine fault.
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "raise the limit of descriptors (LimitNOFILE of the unit, ulimit -n), and see what holds them: ls -l /proc/PID/fd"
	case errors.Is(err, syscall.ENFILE):
		return "raise fs.file-max: all descriptors of the machine are in use"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "widen net.ipv4.ip_local_port_range, or see who holds so many connections: ss -s"
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.ENOBUFS):
		return "see what uses the machine's memory"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "let this process out: a firewall, a network policy or a security module of this machine forbids the connection"
	case errors.Is(err, syscall.ENETDOWN):
		return "bring the machine's network up"
	}
	return "see whether the name servers of /etc/resolv.conf answer this machine"
}

// unfit returns why the process is out of service, or nil.
func (m *ownMachine) unfit() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.why
}

// wait waits until the process is in service.
func (m *ownMachine) wait(ctx context.Context) error {
	m.mu.Lock()
	fit, why := m.fit, m.why
	m.mu.Unlock()
	if why == nil {
		return nil
	}
	select {
	case <-fit:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next returns how long to wait before the next test. It grows each time, until the machine has worked for a
// while.
func (m *ownMachine) next() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.pause
	m.pause = min(2*d, outMost)
	return d
}

func (m *ownMachine) back() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.why, m.since = nil, time.Now()
	close(m.fit)
	m.out.Set(0)
	m.log.Info("this machine can call the gateway again: back in service")
}

// mind tests the machine while the process is out of service, with a connection to the gateway over which
// nothing is sent. Any result but a machine fault puts the process back into service; other faults are for
// calls to find.
func (u *unit) mind(ctx context.Context) time.Duration {
	switch {
	case u.machine.unfit() == nil:
		return -1
	case !u.trying:
		u.pacer.Empty(ctx, job.Slot{}) // its slots are free for others
		u.trying = true
		return u.machine.next()
	case errors.Is(u.now().client.Reach(ctx), job.ErrLocal):
		return u.machine.next()
	}
	u.trying = false
	u.machine.back()
	u.pacer.Wake()
	return -1
}

// TakesJobs returns why Redis does not answer or accept writes for these gateways, or nil if it does both. The
// error's message names no address, so anyone may read it.
func TakesJobs(ctx context.Context, db *redisdb.DB, gateways []string) error {
	if err := db.Ping(ctx); err != nil {
		return unreachable(err)
	}
	err := db.Writable(ctx, gateways)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*redisdb.Error](err); ok {
		return &job.Error{Code: job.CodeUnavailable, Message: e.Message, Hint: e.Hint}
	}
	return unreachable(err)
}

func unreachable(err error) error {
	if !gateway.Local(err) {
		return &job.Error{Code: job.CodeUnavailable, Message: "Redis does not answer", Err: err}
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	return &job.Error{Code: job.CodeUnavailable, Message: "this machine can't connect to Redis: " + errno.Error(), Hint: remedy(err)}
}

// Fit returns why this process does not serve a gateway, because its machine can't call it, or nil if it can
// call all. The message names no address, so anyone may read it.
func (d *Dispatcher) Fit() error {
	for _, u := range d.units() {
		err := u.machine.unfit()
		if err == nil {
			continue
		}
		what := "no name server answers"
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			what = errno.Error()
		}
		return &job.Error{Code: job.CodeFailed, Message: "out of service for gateway " + u.name + " by a fault of this machine: " + what, Hint: remedy(err)}
	}
	return nil
}
