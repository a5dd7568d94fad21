package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/clock"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/pan"
	"spillway/internal/worker"
)

// logger writes to standard error. Without a level a terminal gets a log for a person, and everything else all from info on.
func (p *program) logger(level, format string) *slog.Logger {
	l := slog.LevelInfo
	_ = l.UnmarshalText([]byte(level)) // "" is none
	if p.Quiet {
		l = max(l, slog.LevelWarn)
	}
	options := &slog.HandlerOptions{Level: l}
	handler := slog.Handler(slog.NewTextHandler(p.Err, options))
	if format == "json" {
		handler = slog.NewJSONHandler(p.Err, options)
	}
	handler = pan.Handler{Next: handler}
	if p.sums(level) {
		handler = forPerson{handler}
	}
	return slog.New(handler)
}

// sums says that the log is for a person, whom a line for each attempt would keep from reading the others.
func (p *program) sums(level string) bool { return level == "" && p.ErrTerminal }

// forPerson leaves out the lines of single jobs and requests, unless they warn.
type forPerson struct{ slog.Handler }

// Handle implements slog.Handler.
func (h forPerson) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn && ofOne(r.Message) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h forPerson) WithAttrs(attrs []slog.Attr) slog.Handler {
	return forPerson{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h forPerson) WithGroup(name string) slog.Handler { return forPerson{h.Handler.WithGroup(name)} }

func ofOne(message string) bool {
	return message == worker.LineAttempt || message == worker.LineParked || message == httpapi.LineRequest
}

// sumEvery is how often a person is told what the attempts came to.
const sumEvery = time.Minute

// summary tells a person what the attempts of this process came to, in the place of a line for each.
type summary struct {
	worked prometheus.Gatherer
	log    *slog.Logger
}

// run says so every minute, and in all when its context ends.
func (s *summary) run(ctx context.Context) {
	s.log.Info("attempts are summed up once a minute here; --log-level info shows each")
	for said := (work{}); clock.Wait(ctx, sumEvery) == nil; {
		now := workOf(s.worked)
		s.tell("in the last minute", now.since(said))
		said = now
	}
	s.tell("in all", workOf(s.worked))
}

func (s *summary) tell(when string, w work) {
	if w != (work{}) {
		s.log.Info(when, "calls", w.calls, "done", w.done, "parked", w.parked)
	}
}

// work is what a process has done for all its gateways together.
type work struct{ calls, done, parked int64 }

func (w work) since(before work) work {
	return work{w.calls - before.calls, w.done - before.done, w.parked - before.parked}
}

// workOf reads the worker's instruments. What can't be gathered is left out.
func workOf(from prometheus.Gatherer) (w work) {
	families, _ := from.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n := int64(m.GetCounter().GetValue())
			switch f.GetName() {
			case worker.MetricParked:
				w.parked += n
			case worker.MetricCalls:
				w.calls += n
				for _, l := range m.GetLabel() {
					if l.GetValue() == string(job.VerdictDone) && l.GetName() == "verdict" {
						w.done += n
					}
				}
			}
		}
	}
	return w
}
