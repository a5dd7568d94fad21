package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// Decision is whether a command that moves money or removes something may go ahead.
type Decision int

// The decisions.
const (
	DryRun   Decision = iota // show what would happen, change nothing
	Go                       // do it
	Declined                 // the person at the terminal said no
)

// Consent is the two flags of such a command.
type Consent struct {
	Yes    bool // --yes: do it without asking
	DryRun bool // --dry-run: never do it; wins over Yes
}

// Confirm decides: --dry-run never goes ahead, --yes does, a person at a terminal is asked, and off a terminal
// it is a dry run. The question ends without a question mark. The error is the context's, if it ends before the
// answer.
func Confirm(ctx context.Context, s Streams, c Consent, question string) (Decision, error) {
	switch {
	case c.DryRun:
		return DryRun, nil
	case c.Yes:
		return Go, nil
	case !s.InTerminal || !s.ErrTerminal:
		return DryRun, nil
	}
	fmt.Fprintf(s.Say(), "%s? [y/N] ", question)
	return readAnswer(ctx, s)
}

// readAnswer reads one line. After a cancelled context, the goroutine lives until its line comes, because
// reading from a terminal can't be interrupted; the program ends then anyway.
func readAnswer(ctx context.Context, s Streams) (Decision, error) {
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(s.Err)
		return Declined, ctx.Err()
	case a := <-answer:
		if a == "y" || a == "yes" {
			return Go, nil
		}
		return Declined, nil
	}
}
