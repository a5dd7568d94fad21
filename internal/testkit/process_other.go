//go:build !linux

package testkit

import "syscall"

// dieWithUs can do less than on Linux: the child stays in our process group, so that Ctrl-C ends it too.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
