package main

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/clock"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/pan"
	"spillway/internal/worker"
)

// logger logs to standard error. Without a level, a terminal gets a log for people, and anything else gets
// everything from info on.
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

// unquoted is where the standard logger writes. Only net/http uses it, and quotes an answer there that no call
// asked for. The rest of the line is logged.
type unquoted struct{ log *slog.Logger }

// Write implements io.Writer.
func (u unquoted) Write(line []byte) (int, error) {
	said, _, _ := strings.Cut(string(line), `"`)
	u.log.Warn("net/http: " + strings.TrimSuffix(strings.TrimSpace(said), " starting with"))
	return len(line), nil
}

// takeStandardLog sends what is written with the standard logger to log.
func takeStandardLog(to *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(unquoted{to})
}

// sums reports whether the log is for people, who would be distracted by a line for each attempt.
func (p *program) sums(level string) bool { return level == "" && p.ErrTerminal }

// forPerson leaves out the lines of single jobs and requests, unless they are warnings.
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

// sumEvery is how often attempts are summarized for people.
const sumEvery = time.Minute

// summary logs a summary of this process's attempts for people, instead of a line for each.
type summary struct {
	worked prometheus.Gatherer
	log    *slog.Logger
}

// run logs the summary every minute, and a total when its context ends.
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

// workOf reads the worker's metrics. Those that can't be gathered are left out.
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
