package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/producer"
)

// picky is a door that has no room for the first chunk, or fails, and accepts all later ones.
type picky struct {
	err   error
	began []string // the first job of each chunk
}

func (p *picky) Begin(_ context.Context, _ string, jobs []job.Job, _ admission.Mode) *admission.Passage {
	answers := make([]admission.Answer, len(jobs))
	p.began = append(p.began, jobs[0].ID)
	if len(p.began) == 1 && p.err != nil {
		return admission.Answered(answers, p.err)
	}
	for i := range answers {
		if answers[i].Outcome = job.Enqueued; len(p.began) == 1 {
			answers[i].Outcome = job.Full
		}
	}
	return admission.Answered(answers, nil)
}

// flowed sends a file through a door, and returns the error.
func flowed(t *testing.T, d door, in io.Reader, mode admission.Mode) error {
	t.Helper()
	o := options{mode: mode, read: producer.Options{Gateway: "g", Gateways: func(string) (int64, bool) { return 5, true }}}
	src := jobSource{in: &input{r: in}, opt: o}
	tl := &tally{s: cli.Streams{Out: io.Discard, Err: io.Discard}, opt: o, in: src.in}
	tl.begin(time.Now())
	ended := make(chan error, 1)
	go func() { ended <- flow(t.Context(), src, d, tl) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
		return nil
	}
}

// A chunk must not be accepted before one ahead of it that failed or found no room.
func TestNoChunkBeginsBehindOneThatStoppedTheFile(t *testing.T) {
	t.Parallel()
	bad := errors.New("no right to write")
	for mode, fails := range map[admission.Mode]error{admission.Fail: nil, admission.Wait: bad, admission.Park: bad} {
		d := &picky{err: fails}
		err := flowed(t, d, strings.NewReader(lines("a", 3*admission.ChunkJobs)), mode)
		if err == nil || fails != nil && !errors.Is(err, fails) || len(d.began) != 1 {
			t.Errorf("%s: %d chunks were begun, and it ended with %v", mode, len(d.began), err)
		}
	}
}

// The failure of a chunk ends the run at once, although the input has no next line yet.
func TestAChunkThatFailedEndsThePipe(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	in := io.MultiReader(strings.NewReader(lines("a", admission.ChunkJobs)), r)
	if err := flowed(t, admission.New(admission.Config{}).Line(), in, admission.Park); err == nil {
		t.Error("a door that leads nowhere took jobs in")
	}
}
