package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protowire"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/queue"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// rig is a configuration with a gateway that accepts every call, or answers none.
type rig struct {
	t   *testing.T
	cfg *config.Config
	db  *redisdb.DB
	// dial opens the connections to the gateway; nil: on the machine's network.
	dial dialer

	mu    sync.Mutex
	calls []time.Time
	hang  chan struct{} // the gateway gives no answer before it is closed; nil: it answers at once
}

// setup makes one gateway for each of settings, the rest of its configuration.
func setup(t *testing.T, settings ...string) *rig {
	t.Helper()
	return setupAt(t, testkit.Redis(t), settings...)
}

// setupAt is setup on the Redis at url. Tests of code that walks through all keys need a Redis of their own: in the shared one, a hundred other tests have keys.
func setupAt(t *testing.T, url string, settings ...string) *rig {
	t.Helper()
	r := &rig{t: t}
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	text := "redis: " + url + "\ngateways:\n"
	for _, s := range settings {
		text += fmt.Sprintf("  %s:\n    request: {url: %q, timeout: 20s, idempotency_prefix: \"\"}\n    %s\n", testkit.Gateway(t), srv.URL, strings.ReplaceAll(s, "\n", "\n    "))
	}
	var err error
	if r.cfg, err = config.Parse("x.yaml", []byte(text), config.Options{Secrets: true}); err != nil {
		t.Fatal(err)
	}
	if r.db, err = Open(t.Context(), r.cfg, patience); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	return r
}

// patience is how long to wait for a Redis or a replica that does not answer: on a busy machine, that may take a while.
const patience = 30 * time.Second

// ServeHTTP is the gateway.
func (r *rig) ServeHTTP(http.ResponseWriter, *http.Request) {
	if hang := r.called(); hang != nil {
		<-hang
	}
}

func (r *rig) called() (hang chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, time.Now())
	return r.hang
}

func (r *rig) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.calls)
}

// serve starts a dispatcher for all gateways.
func (r *rig) serve() *Dispatcher { return r.serveWith(slog.New(slog.DiscardHandler)) }

func (r *rig) serveWith(log *slog.Logger) *Dispatcher {
	r.t.Helper()
	d, err := New(Params{DB: r.db, Gateways: r.cfg.Gateways, Metrics: prometheus.NewRegistry(), Log: log, Patience: patience})
	if err != nil {
		r.t.Fatal(err)
	}
	r.connect(d)
	if err := d.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		d.Stop(ctx)
	})
	return d
}

// connect has a dispatcher that has not started dial as the rig does.
func (r *rig) connect(d *Dispatcher) {
	r.t.Helper()
	if r.dial == nil {
		return
	}
	d.tools.dial = r.dial
	for _, u := range d.units() {
		u.tools.dial = r.dial
		s, err := u.newSet(u.now().cfg)
		if err != nil {
			r.t.Fatal(err)
		}
		u.now().close()
		u.set.Store(s)
	}
}

// put admits n jobs of the gateway at that index.
func (r *rig) put(at, n int) {
	r.t.Helper()
	r.more(at, 0, n)
}

// more admits n jobs, numbered from first.
func (r *rig) more(at, first, n int) {
	r.t.Helper()
	name := r.cfg.Gateways[at].Name
	var jobs []job.Job
	for i := first; i < first+n; i++ {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("j%04d", i), Gateway: name, Payload: []byte(`{}`), Cost: 1})
	}
	if _, err := Door(r.db.Client, r.cfg, patience).Admit(r.t.Context(), name, jobs, admission.Park); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) standing(at int) record.Standing {
	r.t.Helper()
	var s record.Standing
	var err error
	testkit.Within(20*time.Second, 10*time.Millisecond, func() bool { // a busy machine lets a read time out
		s, err = Books(r.db.Client, r.cfg.Gateways[at]).Look(r.t.Context())
		return !redisdb.Away(err)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// overdue puts a foreign task whose deadline has passed into the first gateway's queue: asynq pulls it and
// calls no handler. If a message has a field twice, the last one counts.
func (r *rig) overdue(id string) {
	r.t.Helper()
	const typeField, deadlineField = 1, 9
	name := r.cfg.Gateways[0].Name
	msg, err := queue.NewEncoder(name).Encode(id)
	if err != nil {
		r.t.Fatal(err)
	}
	msg = protowire.AppendString(protowire.AppendTag(msg, typeField, protowire.BytesType), "email")
	msg = protowire.AppendVarint(protowire.AppendTag(msg, deadlineField, protowire.VarintType), 1)
	k := redisdb.NewKeys(name)
	r.db.Client.HSet(r.t.Context(), k.Task(id), "msg", msg, "state", "pending")
	r.db.Client.LPush(r.t.Context(), k.Pending(), id)
}
