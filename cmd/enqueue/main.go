// Enqueue reads a billing file and submits its jobs for admission. It is the producer's side of the dispatcher.
package main

import (
	"os"

	"spillway/internal/cli"
)

func main() { os.Exit(cli.Main(name, newCommand, os.Args[1:], cli.Standard())) }
