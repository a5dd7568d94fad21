package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manPages is the output of "man -o json".
type manPages struct {
	Directory string   `json:"directory"`
	Pages     []string `json:"pages"`
}

// ManCommand returns "man [DIR]" for either program, which writes a page for each of its commands.
func ManCommand(s Streams, c *Common) *cobra.Command {
	return &cobra.Command{
		Use: "man [DIR]", Short: "Write man pages of all commands",
		Long: `Man writes a manual page for each command into a directory, which is created if missing (default: man1 in
the current directory). Existing files of these names are replaced.`,
		Example: "  dispatcher man\n  man -l man1/dispatcher-run.1\n  sudo dispatcher man /usr/local/share/man/man1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "man1"
			if len(args) > 0 {
				dir = args[0]
			}
			return writeMan(s, c, cmd.Root(), dir)
		},
	}
}

func writeMan(s Streams, c *Common, root *cobra.Command, dir string) error {
	before := root.DisableAutoGenTag
	root.DisableAutoGenTag = true // a line with the date would differ in each build
	defer func() { root.DisableAutoGenTag = before }()
	if shells, _, err := root.Find([]string{"completion"}); err == nil && shells != root {
		root.RemoveCommand(shells) // --help contains everything
		defer root.AddCommand(shells)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Usage("name a directory that can be written to", "can't make the directory: %v", err)
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Spillway", Manual: "Spillway"}, dir); err != nil {
		return Usage("name a directory that can be written to", "can't write man pages: %v", err)
	}
	pages := pagesOf(root)
	if c.JSON() {
		return WriteJSON(s.Out, manPages{filepath.ToSlash(dir), pages})
	}
	_, err := fmt.Fprintf(s.Tell(), "%d pages in %s\n", len(pages), dir)
	return err
}

// pagesOf returns the pages of a command and its subcommands, as cobra names them.
func pagesOf(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
			names = append(names, pagesOf(sub)...)
		}
	}
	names = append(names, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
	slices.Sort(names)
	return names
}
