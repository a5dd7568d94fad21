//go:build !unix

package testkit

import "syscall"

// use does nothing: there is no root here.
func (account) use(*syscall.SysProcAttr) {}
