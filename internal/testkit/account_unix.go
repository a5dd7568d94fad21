//go:build unix

package testkit

import "syscall"

// use has a process run as the account.
func (a account) use(attr *syscall.SysProcAttr) {
	if a.other {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
}
