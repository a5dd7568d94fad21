package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Verdicts of a part.
const (
	passed  = "passed"
	failed  = "FAILED"
	nothing = "NOTHING RAN" // as bad as a failure
	cut     = "CUT SHORT"
	notRun  = "not run"
)

// result is the result of a part.
type result struct {
	part    part
	command string
	verdict string
	why     string // of a verdict that is not passed
	took    time.Duration
	output  digest
	log     string // where all of the output is
}

// patience is how long a part may take to end when it is told to.
const patience = 30 * time.Second

// run runs the part to its end, with its output in a file.
func (r *result) run(ctx context.Context, o options) {
	r.log = filepath.Join(o.logs, o.version+"-"+r.part.name+".log")
	began := o.now()
	err := r.logged(ctx)
	r.took = o.now().Sub(began)
	text, readErr := os.ReadFile(r.log)
	r.output = digestOf(text)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		r.verdict, r.why = cut, "somebody ended the report"
	case errors.As(err, &exit):
		r.verdict, r.why = failed, exit.String()
	case err != nil || readErr != nil:
		r.verdict, r.why = failed, errors.Join(err, readErr).Error()
	case len(r.output.failures) > 0:
		r.verdict, r.why = failed, "it ended well, and its output has failures"
	case r.output.passed == 0 || bytes.Contains(text, []byte("no tests to run")) && !bytes.Contains(text, []byte("--- PASS")):
		r.verdict, r.why = nothing, "no test passed, and none failed"
	default:
		r.verdict = passed
	}
}

func (r *result) logged(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(r.log), 0o755); err != nil {
		return err
	}
	log, err := os.Create(r.log)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", r.command)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it started ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = patience
	return cmd.Run()
}
