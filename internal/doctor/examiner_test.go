package doctor

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// Any number of callers share one examination, and its report is used for a while. A caller that can't wait gets the last report.
func TestAnExaminerLooksOnceForAll(t *testing.T) {
	t.Parallel()
	url, _ := listening(t)
	p := newPatient(t, testkit.Server(t, sound...).URL(), "request: {url: \""+url+"\"}", "leak: {limits: [100/s]}").p
	var looks atomic.Int64
	release := make(chan struct{})
	x := NewExaminer(func() Params {
		looks.Add(1)
		<-release
		return p
	})
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Report(hurried); job.CodeOf(err) != job.CodeUnavailable {
		t.Errorf("before there is a report: %v", err)
	}
	reports := make(chan *Examined, 8)
	for range cap(reports) {
		go func() { reports <- x.Last(t.Context()) }()
	}
	close(release)
	for range cap(reports) {
		if e := <-reports; e == nil || len(e.Checks) == 0 || e.Failed != 0 || len(e.Findings(OK))+len(e.Findings(Warn)) != len(e.Checks) {
			t.Errorf("%+v", e)
		}
	}
	if again, err := x.Report(hurried); err != nil || looks.Load() != 1 {
		t.Errorf("%d looks for %+v, %v", looks.Load(), again, err)
	}
	x.mu.Lock()
	x.last.At = x.last.At.Add(-2 * time.Minute)
	old := x.last
	x.mu.Unlock()
	if e := x.Last(t.Context()); e == old || looks.Load() != 2 {
		t.Errorf("an old report stands after %d looks", looks.Load())
	}
}

// An open Redis can be passed in. It is examined, and stays open.
func TestAnOpenRedisIsLookedAt(t *testing.T) {
	t.Parallel()
	p := newPatient(t, testkit.Server(t, sound...).URL(), "request: {url: \"http://127.0.0.1:1/\"}", "leak: {limits: [100/s]}").p
	db, err := dispatch.Open(t.Context(), p.Config, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p.DB, p.Config.Redis = db, "redis://nobody.invalid"
	r, err := Run(t.Context(), p)
	if err != nil || r.Away != nil || !has(r, "redis", OK, "version", "") {
		t.Errorf("%v: %s", err, list(r))
	}
	if err := db.Client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
