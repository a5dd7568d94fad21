//go:build !linux

package chaos

import "errors"

// rlimit is a limit that a process has on its open files.
type rlimit struct{ now, most uint64 }

var errElsewhere = errors.New("only Linux sets the limits of another process")

func descriptors(int) (rlimit, error) { return rlimit{}, errElsewhere }

func limitDescriptors(int, rlimit) error { return errElsewhere }

func used(int) uint64 { return 0 }
