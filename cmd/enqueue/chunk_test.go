package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/producer"
)

func TestChunksAreBoundedInJobsAndBytes(t *testing.T) {
	t.Parallel()
	var c chunks
	for i := range admission.ChunkJobs {
		ready := c.add(producer.Line{Number: i + 1, Job: job.Job{Gateway: "a"}, Raw: []byte("x")})
		if (len(ready) == 1) != (i == admission.ChunkJobs-1) {
			t.Fatalf("job %d: %d chunks are ready", i+1, len(ready))
		}
	}
	big := []byte(strings.Repeat("x", 1<<20))
	if ready := c.add(producer.Line{Job: job.Job{Gateway: "a"}, Raw: big}); len(ready) != 0 {
		t.Errorf("%d chunks are ready", len(ready))
	}
	if ready := c.add(producer.Line{Job: job.Job{Gateway: "a"}, Raw: big}); len(ready) != 1 || len(ready[0].jobs) != 2 || c.bytes != 0 {
		t.Errorf("%d chunks are ready, %d bytes are left", len(ready), c.bytes)
	}
	var all []chunk
	for i := range openBytes >> 20 {
		all = append(all, c.add(producer.Line{Job: job.Job{Gateway: string(rune('a' + i))}, Raw: big})...)
	}
	if len(all) != openBytes>>20 || all[0].gateway != "a" || c.bytes != 0 || len(c.open) != 0 {
		t.Errorf("%d chunks are ready, %d bytes are left", len(all), c.bytes)
	}
}

func lookedAt(t *testing.T, path string) (*input, time.Time) {
	t.Helper()
	in := &input{path: path}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	in.file, in.r = f, f
	if err := in.twice(); err != nil {
		t.Fatal(err)
	}
	seen, err := in.changed()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Fatal(err)
	}
	return in, seen
}

// A file grows after its control totals were checked. Either the new lines are not read, or the change is an error.
func TestNothingUncheckedGoesIn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a")
	grow := func(when time.Time) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteString("line\n")
		_ = f.Close()
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Unix(1e9, 0)
	grow(then)
	in, seen := lookedAt(t, path)
	if err := in.again(seen); err != nil {
		t.Fatal(err)
	}
	grow(then.Add(time.Hour))
	if text, err := io.ReadAll(in); err != nil || string(text) != "line\n" {
		t.Errorf("read %q, %v", text, err)
	}
	in, seen = lookedAt(t, path)
	grow(then.Add(2 * time.Hour))
	if err := in.again(seen); !errors.Is(err, errChanged) {
		t.Errorf("got %v", err)
	}
}
