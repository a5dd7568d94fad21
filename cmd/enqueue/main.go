// Enqueue reads a billing file and hands its jobs to admission: the producer's side of the dispatcher.
package main

import (
	"os"

	"spillway/internal/cli"
)

func main() { os.Exit(cli.Main(name, newCommand, os.Args[1:], cli.Standard())) }
