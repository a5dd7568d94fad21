package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spillway/internal/job"
)

// unknownCommand returns the error for an unknown command, with the closest one.
func unknownCommand(parent *cobra.Command, word string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	text := fmt.Sprintf("unknown command %q", word)
	if parent.HasParent() {
		text += fmt.Sprintf(" for %q", parent.CommandPath())
	}
	return Usage(cmp.Or(elsewhere(parent, word), helpHint(parent)), "%s%s", text, job.DidYouMean(word, "", names))
}

// elsewhere says where else a word is a command; empty: nowhere known.
func elsewhere(parent *cobra.Command, word string) string {
	if !parent.HasParent() && parent.Name() == "dispatcher" && word == "enqueue" {
		return "enqueue is a program of its own beside dispatcher: enqueue -f FILE"
	}
	return ""
}

// flagError returns the error for an unknown flag, with the closest one. After an unknown command all flags are
// unknown: then the error is about the command.
func (p *program) flagError(cmd *cobra.Command, err error) error {
	unknown, is := errors.AsType[*pflag.NotExistError](err)
	if !is {
		return err
	}
	if _, rest, found := cmd.Root().Find(p.args); found == nil && p.groups[cmd] && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return unknownCommand(cmd, rest[0])
	}
	if unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return Usage(helpHint(cmd), "%s%s", err, job.DidYouMean(unknown.GetSpecifiedName(), "--", names))
}

func helpHint(cmd *cobra.Command) string { return fmt.Sprintf("see %q", cmd.CommandPath()+" --help") }
