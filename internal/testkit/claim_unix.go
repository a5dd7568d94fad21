//go:build unix

package testkit

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// claims are the locked files of the ports that this process has. The caller of claim holds portMu.
var claims []*os.File

// claim takes a port for this process until it ends, and reports whether no other test process has it. Without claims, a port on which nobody listens for a moment could be
// given to another process.
func claim(port int) bool {
	dir := filepath.Join(os.TempDir(), "spillway-test-ports")
	if os.MkdirAll(dir, 0o777) != nil {
		return true // without the directory there are no claims
	}
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return true
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return false
	}
	claims = append(claims, f) // its lock goes with the process
	return true
}

// lock waits until no other process has the lock of a file, and takes it.
func lock(path string) (unlock func()) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return func() {} // without the file there is no lock
	}
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	return func() { _ = f.Close() }
}
