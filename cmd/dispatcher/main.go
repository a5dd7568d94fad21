// Dispatcher sends queued jobs to their gateways, each at its leak rate, and manages parked jobs.
package main

import (
	"os"

	"spillway/internal/cli"
)

func main() { os.Exit(cli.Main(name, newCommand, os.Args[1:], cli.Standard())) }
