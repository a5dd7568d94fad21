package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// Decision is what a command that moves money or takes something away may do.
type Decision int

// The decisions.
const (
	DryRun   Decision = iota // show what would happen, change nothing
	Go                       // do it
	Declined                 // the person at the terminal said no
)

// Consent is the two flags by which such a command is told.
type Consent struct {
	Yes    bool // --yes: do it without asking
	DryRun bool // --dry-run: never do it; wins over Yes
}

// Confirm decides: --dry-run never does it, --yes does, a person at a terminal is asked, and off a terminal it is a dry
// run. The question ends without a question mark. The error is the context's, when it ends before the answer.
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

// readAnswer reads one line. The goroutine outlives a cancelled context until its line comes: reading from a terminal
// can't be broken off, and the program ends then anyway.
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
