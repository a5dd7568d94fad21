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

// unknownCommand is the error of a command that there is not, with the one that was most likely meant.
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

// elsewhere says where a word is a command that is none of this one; empty: nowhere that is known.
func elsewhere(parent *cobra.Command, word string) string {
	if !parent.HasParent() && parent.Name() == "dispatcher" && word == "enqueue" {
		return "enqueue is a program of its own beside dispatcher: enqueue -f FILE"
	}
	return ""
}

// flagError says of a flag that there is not which one was most likely meant. Behind a command that there is not, all flags are unknown: then the
// command is what was asked wrongly.
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
