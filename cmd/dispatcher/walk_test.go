package main

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/remote"
)

// otherDoors are the paths of the API without a command of dispatcher, and what uses them.
var otherDoors = map[string]string{
	"/v1/gateways/{gateway}/jobs":      "enqueue",
	"/v1/gateways/{gateway}/jobs/{id}": "job, of one gateway",
	"/metrics":                         "Prometheus",
	"/healthz":                         "supervisors",
	"/readyz":                          "supervisors, and healthcheck",
	"/openapi.json":                    "programs",
	"/v1/login":                        "dispatcher login",
	"/v1/whoami":                       "dispatcher login, and programs",
}

// The API can do all that the command line can: each command has an operation, and each operation a command.
func TestEveryCommandHasItsOperation(t *testing.T) {
	t.Parallel()
	commands := leaves("", newCommand(cli.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}))
	served := map[string]bool{}
	paths := map[string]bool{}
	for _, o := range remote.Table() {
		about := o.Described()
		paths[about.Path] = true
		if len(about.Commands) == 0 {
			t.Errorf("%s names no command", about.Name)
		}
		for _, c := range about.Commands {
			served[c] = true
			if !slices.Contains(commands, c) {
				t.Errorf("%s is for the command %q, which there is not", about.Name, c)
			}
		}
	}
	for _, c := range commands {
		if _, local := stayLocal[c]; served[c] == local {
			t.Errorf("the command %q has an operation: %v; it is among those that stay local: %v", c, served[c], local)
		}
	}
	for _, c := range slices.Sorted(maps.Keys(stayLocal)) {
		if !slices.Contains(commands, c) {
			t.Errorf("%q is to stay local, and there is no such command", c)
		}
	}
	doc, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	for path := range doc.Paths.Map() {
		if _, other := otherDoors[path]; paths[path] == other {
			t.Errorf("%s is in the table: %v; it is among those for others: %v", path, paths[path], other)
		}
	}
}

// leaves returns the commands that can be run, without the program's name.
func leaves(before string, cmd *cobra.Command) (all []string) {
	for _, c := range cmd.Commands() {
		name := strings.TrimSpace(before + " " + c.Name())
		if c.Runnable() || !c.HasSubCommands() {
			all = append(all, name)
		}
		all = append(all, leaves(name, c)...)
	}
	return all
}
