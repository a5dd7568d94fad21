// Temporal is a peer of the comparison against a limit: a Temporal server, jobs for it, and a worker that calls a provider. It is a module of its own, as
// the server alone brings several hundred others.
//
//	temporal serve PARTITIONS FAIR                 says HOST:PORT and a namespace, and ends with its standard input; PARTITIONS 0: as by default; FAIR true: with fairness keys
//	temporal add HOST:PORT NAMESPACE               reads lines of {"id", "payload"}
//	temporal keyed HOST:PORT NAMESPACE             reads lines of {"id", "lane", "payload"}, and says how many jobs were added in a second
//	temporal work HOST:PORT NAMESPACE URL RATE AT_ONCE
//	temporal left HOST:PORT NAMESPACE              says how many workflows, of up to 100 jobs each, and jobs of keyed have not ended
package main

import (
	"fmt"
	"os"
)

const queue = "bench"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "temporal:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	verbs := map[string]struct {
		args int
		do   func(args []string) error
	}{"serve": {2, serve}, "add": {2, add}, "keyed": {2, keyed}, "work": {5, work}, "left": {2, left}}
	if len(args) > 0 {
		if verb, ok := verbs[args[0]]; ok && len(args) == 1+verb.args {
			return verb.do(args[1:])
		}
	}
	return fmt.Errorf("no such call: %q", args)
}
