package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/console"
	"spillway/internal/dispatch"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// inForce is the configuration currently used by a running dispatcher.
type inForce struct{ atomic.Pointer[config.Config] }

func newInForce(cfg *config.Config) *inForce {
	f := &inForce{}
	f.Store(cfg)
	return f
}

// door is the door for the current configuration.
type door struct{ atomic.Pointer[admission.Door] }

func newDoor(d *admission.Door) *door {
	n := &door{}
	n.Store(d)
	return n
}

// Admit implements httpapi.Door.
func (d *door) Admit(ctx context.Context, gateway string, jobs []job.Job, mode admission.Mode) ([]admission.Answer, error) {
	return d.Load().Admit(ctx, gateway, jobs, mode)
}

// reloader reads the file again on SIGHUP, and passes it on.
//
//	SIGHUP → load, check → dispatcher (calls, limits) → door, API, console, gauges
//	            └─ a fault: nothing is changed
type reloader struct {
	s       served
	d       *dispatch.Dispatcher
	api     *httpapi.API
	guard   *httpapi.Guard
	console *console.Console
	gauges  *dispatch.Gauges
	meters  *reloadMetrics
}

// run waits for signals until its context ends.
func (r *reloader) run(ctx context.Context) {
	for {
		select {
		case <-r.s.reload:
			r.once(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// once applies the current file, or leaves everything unchanged.
func (r *reloader) once(ctx context.Context) {
	now, did, err := r.take(ctx)
	r.meters.count(err == nil)
	if err != nil {
		r.s.log.Error("the configuration was not reloaded, the old one stays in force", "file", r.s.file.Load().File,
			"error", strings.ReplaceAll(err.Error(), "\n", "; "), "hint", "mend the file and send SIGHUP again")
		return
	}
	merged, kept := merge(r.s.file.Load(), now, did.Gateways)
	kept = append(kept, did.Kept...)
	r.s.file.Store(merged)
	r.guard.Use(accessOf(merged))
	r.console.Use(did.Gateways)
	r.gauges.Use(did.Gateways)
	r.s.door.Store(dispatch.Door(r.s.db.Client, merged, apiPatience))
	r.api.Use(offered(r.s.db.Client, merged)) // after the door, which must know the gateways offered
	r.tell(ctx, now, did, kept)
}

// take reads the file and applies it to the dispatcher.
func (r *reloader) take(ctx context.Context) (now *config.Config, did dispatch.Reloaded, err error) {
	if now, err = r.s.load(); err != nil {
		return nil, did, err
	}
	if err = r.admits(now); err != nil {
		return nil, did, err
	}
	serving, err := r.s.choose(now)
	if err != nil {
		return nil, did, fmt.Errorf("this run was started with -g for a gateway that is gone, restart it to serve others: %w", err)
	}
	did, err = r.d.Reload(ctx, serving)
	return now, did, err
}

// tell logs the result of a reload.
func (r *reloader) tell(ctx context.Context, now *config.Config, did dispatch.Reloaded, kept []string) {
	r.warn(ctx, did.Added, now.WaitReplicas)
	said := []any{"file", now.File}
	if n, m := len(did.Added), len(did.Removed); n+m > 0 {
		said = append(said, "gateways_added", n, "gateways_removed", m)
	}
	if len(kept) > 0 {
		r.s.log.Warn("configuration reloaded, except for what takes a restart", append(said, "kept", strings.Join(kept, ", "),
			"hint", "restart run when it suits you, no job is lost by it; until then all else of the file is in force")...)
		return
	}
	r.s.log.Info("configuration reloaded", said...)
}

// warn logs for new gateways what a start would have logged.
func (r *reloader) warn(ctx context.Context, added []config.Gateway, replicas int) {
	if len(added) == 0 {
		return
	}
	look := func(ctx context.Context) ([]redisdb.Finding, error) {
		return dispatch.LookForKeyless(ctx, r.s.db, added, replicas, 0)
	}
	if err := report(ctx, r.s.log, look); err != nil {
		r.s.log.Warn("not looked whether Redis may forget calls of the new gateways", "error", err)
	}
}

// admits refuses a token that the address in use does not allow.
func (r *reloader) admits(now *config.Config) error {
	at := r.s.at
	if at.access = accessOf(now); at.text == "" || at.access.Open() {
		return nil // it opens no access, or the one in force stays
	}
	return at.guarded()
}

// merge returns the configuration in force after a reload with these served gateways, and describes what of the
// file is not in force.
func merge(old, now *config.Config, serving []config.Gateway) (*config.Config, []string) {
	merged, kept := *old, differences(*old, *now)
	merged.Encryption, merged.CookieSecure, merged.SecretFiles = now.Encryption, now.CookieSecure, now.SecretFiles
	merged.DedupeScope = now.DedupeScope
	if old.Guarded() == now.Guarded() {
		merged.Token, merged.TokenPrevious, merged.Tokens, merged.OIDC = now.Token, now.TokenPrevious, now.Tokens, now.OIDC
	} else {
		kept = append(kept, "token, tokens and oidc, which are new or gone")
	}
	served := make(map[string]config.Gateway, len(serving))
	for _, g := range serving {
		served[g.Name] = g
	}
	merged.Gateways = slices.Clone(now.Gateways)
	for i, g := range merged.Gateways {
		if as, here := served[g.Name]; here {
			merged.Gateways[i] = as
		}
	}
	return &merged, kept
}

// differences names the differing settings outside of gateways.
func differences(old, now config.Config) []string {
	var names []string
	a, b := reflect.ValueOf(old), reflect.ValueOf(now)
	for i := range a.NumField() {
		field := a.Type().Field(i).Name
		switch field {
		case "File", "Gateways", "ListenWritten", "RedisAt", "Encryption", "Token", "TokenPrevious", "Tokens", "OIDC", "CookieSecure", "SecretFiles", "DedupeScope": // applied, or named by merge
			continue
		}
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			names = append(names, key(field))
		}
	}
	return names
}

// key returns a field's key in the file: wait_replicas for WaitReplicas.
func key(field string) string {
	if field == "RedisTLS" {
		return "redis.tls"
	}
	var b strings.Builder
	for i, c := range field {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// reloadMetrics count reloads.
type reloadMetrics struct {
	total    *prometheus.CounterVec
	last     prometheus.Gauge
	lastGood prometheus.Gauge
}

func newReloadMetrics(reg prometheus.Registerer) *reloadMetrics {
	m := &reloadMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_config_reloads_total",
			Help: "Times that SIGHUP had the configuration read again, by result: done, or refused for a fault in it."}, []string{"result"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillway_config_last_reload_successful",
			Help: "0 if the last reload was refused, so that the file is not what is in force; 1 else."}),
		lastGood: prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillway_config_last_reload_success_timestamp_seconds",
			Help: "When the configuration in force was read."}),
	}
	reg.MustRegister(m.total, m.last, m.lastGood)
	m.total.WithLabelValues("done")
	m.total.WithLabelValues("refused")
	m.good()
	return m
}

func (m *reloadMetrics) good() {
	m.last.Set(1)
	m.lastGood.SetToCurrentTime()
}

func (m *reloadMetrics) count(done bool) {
	if !done {
		m.total.WithLabelValues("refused").Inc()
		m.last.Set(0)
		return
	}
	m.total.WithLabelValues("done").Inc()
	m.good()
}

// reloadable says how a run reads its file again.
type reloadable struct {
	load   func() (*config.Config, error)
	choose func(*config.Config) ([]config.Gateway, error) // the gateways of a file that this run serves
	reload <-chan os.Signal
}
