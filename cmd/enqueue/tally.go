package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
	"spillway/internal/tracing"
)

const safeAgain = "that is safe, jobs that are in already are counted as duplicate"

// tally counts what became of each line and prints faults. The feeder and the pipe share it.
type tally struct {
	s   cli.Streams
	opt options
	in  *input
	// traces records the jobs admitted; nil: not traced.
	traces *tracing.Tracer

	read atomic.Int64 // jobs read, without invalid lines

	mu        sync.Mutex
	rejects   *rejects
	progress  *cli.Progress
	enqueued  int64
	parked    int64
	duplicate int64
	elsewhere map[string]int64 // duplicates known at other gateways, by gateway
	conflicts int64            // invalid because of the payload: these count as jobs read
	bad       int64            // invalid as lines
	full      error            // the error about missing room; nil: there was room so far
	control   *control
	started   time.Time
	fed       bool              // reading has begun, and the control totals matched
	refused   bool              // the control totals did not match
	csv       bool              // the file looks like CSV, but no name or flag says so: it is read as NDJSON
	declined  bool              // the operator was asked and said no
	sample    sample            // what a dry run has seen
	faults    cli.Faults        // the faults printed so far
	canaries  canaries          // the state of the canary jobs; nil if there are none
	replacing *desk.Replacement // nil unless payloads are replaced
	rows      *takenRows        // the outbox rows in flight; nil: no outbox
	closed    bool              // set when the report is written; a feeder that still hangs in a read changes nothing after it
}

func (t *tally) begin(now time.Time) {
	t.started = now
	t.progress = cli.NewProgress(t.s, cli.ProgressParams{What: name, Total: t.in.size(), Bytes: true, Quiet: t.opt.Quiet})
}

// header is called before the first line. raw is the header row of a CSV file, or nil.
func (t *tally) header(raw []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fed = true
	if t.rejects != nil {
		t.rejects.header = raw
	}
}

// invalidLine reports a line that is not a job. It also reads the rest of an overlong line.
func (t *tally) invalidLine(l producer.Line, r *producer.Reader) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return context.Canceled
	}
	t.bad++
	t.rows.refuse(l.Number, l.Err)
	if l.Number == 1 {
		t.csv = t.opt.format == "" && looksLikeCSV(l.Raw)
	}
	if err := t.rejects.add(l.Masked(), l.Rest); err != nil {
		return err
	}
	why := l.Err.Error()
	if l.Rest != nil {
		if _, err := io.Copy(io.Discard, l.Rest); err != nil {
			return err
		}
		if last := r.Number(); last > l.Number {
			why += fmt.Sprintf("; it goes on to line %d, and nothing of it was used", last)
		}
	}
	t.fault(l.Number, why)
	return nil
}

// fault prints why a line can't be used, up to the limit on printed faults.
func (t *tally) fault(line int, why string) {
	if t.faults.Add(why) {
		t.say("%s: %s", t.place(line), why)
	}
}

// place returns how messages refer to a line.
func (t *tally) place(line int) string {
	if id := t.rows.id(line); id != "" {
		return "row " + id
	}
	return fmt.Sprintf("%s %d", cmp.Or(t.in.unit, "line"), line)
}

// looksLikeCSV reports whether a line that is not JSON may be the header row of a CSV file.
func looksLikeCSV(line []byte) bool {
	return bytes.ContainsAny(line, ",;\t") && !bytes.ContainsAny(line, "{}[]")
}

// say writes a line to standard error, above the progress bar.
func (t *tally) say(format string, args ...any) {
	t.progress.Clear()
	fmt.Fprintf(t.s.Say(), format+"\n", args...)
}

// stopped ends the counting. To an error that stopped the run it adds how far the run got.
func (t *tally) stopped(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, more := range t.faults.More() {
		t.say("%s", more)
	}
	if t.progress != nil {
		t.progress.Close()
	}
	err = redisdb.Coded(err)
	e, coded := errors.AsType[*job.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return t.cut(&job.Error{Code: job.CodeInterrupted, Message: "interrupted"})
	case coded && e.Code == job.CodeUnavailable:
		return t.cut(e)
	}
	return err
}

// cut adds to an error how far the run got.
func (t *tally) cut(e *job.Error) error {
	c := t.counts()
	far := "nothing had been enqueued"
	if c.Read > 0 {
		far = fmt.Sprintf("of %d lines read so far %d are in, and %d more may or may not be", c.Read,
			c.Enqueued+c.Parked+c.Duplicate, c.Failed)
	}
	return &job.Error{Code: e.Code, Message: e.Message + "; " + far, Err: e.Err, Hint: "run the same again: " + safeAgain}
}

// verdict returns the error for the lines that could not be used, or nil.
func (t *tally) verdict() error {
	c := t.counts()
	if c.Invalid == 0 {
		return nil
	}
	hint := "mend them and enqueue them again; --rejects FILE collects them"
	switch {
	case t.csv && c.Invalid == c.Read:
		hint = "this looks like CSV: say --format csv, and with --id-field which column is the id"
	case t.refused, t.rejects.lost(): // the refusal says what to do, and nothing was written to --rejects
		hint = ""
	case t.opt.outbox != "" && !t.opt.dryRun:
		hint = "the column refused says why; mend them and set it to null"
	case t.opt.rejects != "":
		hint = fmt.Sprintf("mend them in %s and enqueue that", t.opt.rejects)
	}
	return &job.Error{
		Code: job.CodeInvalid, Hint: hint,
		Message: fmt.Sprintf("%d of %d lines could not be used", c.Invalid, c.Read),
	}
}

func (t *tally) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rejects.close(t.fed)
}
