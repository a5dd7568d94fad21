//go:build unix

package oidc

import (
	"errors"
	"os"
	"syscall"
)

// held reports whether another process has a directory's lock. If not, this process gets it until the directory
// is closed.
func held(dir *os.File) bool {
	return errors.Is(syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
