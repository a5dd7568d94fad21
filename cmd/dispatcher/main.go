// Dispatcher sends queued jobs to their gateways at each one's leak rate, and looks after what is parked.
package main

import (
	"os"

	"spillway/internal/cli"
)

func main() { os.Exit(cli.Main(name, newCommand, os.Args[1:], cli.Standard())) }
