package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"spillway/internal/job"
)

// The exit codes of both programs.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitInvalid     = 3
	ExitNotFound    = 4
	ExitUnavailable = 5
	ExitInterrupted = 130
)

// ExitCode returns the exit code for a command's error: 0 for nil, that of the outermost job.Error, 130 for a
// cancelled context, else 1. Of joined errors the first with a code decides.
func ExitCode(err error) int {
	if err == nil {
		return ExitDone
	}
	if _, coded := errors.AsType[*job.Error](err); !coded && errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	return exitCodeOf(job.CodeOf(err))
}

func exitCodeOf(code job.Code) int {
	switch code {
	case job.CodeUsage:
		return ExitUsage
	case job.CodeInvalid:
		return ExitInvalid
	case job.CodeNotFound:
		return ExitNotFound
	case job.CodeUnavailable:
		return ExitUnavailable
	case job.CodeInterrupted:
		return ExitInterrupted
	case job.CodeFailed:
		return ExitFailed
	}
	return ExitFailed
}

// exitMeanings is the help topic's table, in order.
var exitMeanings = []struct {
	code    int
	meaning string
}{
	{ExitDone, "done; jobs parked under --on-full park, and duplicates, are done"},
	{ExitFailed, "failed"},
	{ExitUsage, "asked wrongly: flag or configuration, with file, line and field"},
	{ExitInvalid, "finished, but some input was invalid, --on-full fail found no room, the batch has stopped itself (--canary), an act awaits the approval of a second person, or a report and the records differ (reconcile)"},
	{ExitNotFound, "no such job, batch or gateway"},
	{ExitUnavailable, "something it needs is away (Redis, for 30 s in enqueue): try again"},
	{ExitInterrupted, "interrupted"},
}

// ExitCodesHelp returns the text of the help topic "exit-codes".
func ExitCodesHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, m := range exitMeanings {
		fmt.Fprintf(&b, "  %3d  %s\n", m.code, m.meaning)
	}
	b.WriteString("\nEvery message on standard error says what is wrong, then what to do.")
	return b.String()
}
