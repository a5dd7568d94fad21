package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
	"spillway/internal/testkit"
)

// A dispatcher stops during a replay. The command says so, and how many jobs were replayed. These stay replayed.
func TestAStoppingServerEndsItsActs(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.stock()
	got := make(chan ran)
	go func() { got <- f.afar(cli.Streams{}, "dlq", "replay", "-g", f.one, "--canary", "1", "--yes", "-q") }()
	testkit.Eventually(t, 10*time.Second, "the first job is sent ahead", func() bool { return f.record(f.one, "a").State == job.Queued })
	f.api.api.Stopping()
	if end := <-got; end.code != 5 || !strings.Contains(end.err, "1 of 4 jobs replayed: the dispatcher that did this is stopping") {
		t.Errorf("%d %s", end.code, end.err)
	}
	f.ended(`"what":"replay","filter":"--canary 1","jobs":1`)
}

// An act ends when its caller has gone.
func TestAnActEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.stock()
	d, err := remote.NewThere(f.url, apiToken)
	f.must(err)
	defer d.Close()
	q := remote.Clearing{Filter: remote.FilterOf([]string{f.one}, deadletter.Filter{}), Action: desk.Replay.Name, Canary: 1}
	seen, err := remote.Previewed.Ask(t.Context(), d, q)
	f.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = remote.Clear.Do(ctx, d, q.After(seen, desk.By{Who: "ann"}), remote.Out[remote.ClearedPart]{Line: func(p remote.ClearedPart) error {
		if p.Canary != nil {
			cancel()
		}
		return nil
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	f.ended(`"who":"ann","what":"replay","filter":"--canary 1","jobs":1`)
}

// ended waits until the trail says that an act has ended.
func (f *far) ended(act string) {
	f.t.Helper()
	testkit.Eventually(f.t, 10*time.Second, "the act has ended in the trail", func() bool {
		trail := f.trail(f.one)
		return strings.Contains(trail, act) && strings.Contains(trail, `"ended":"TIME"`)
	})
}
