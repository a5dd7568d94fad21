package testkit

import "syscall"

// dieWithUs makes the kernel kill the child when the test process ends, whatever the way. A process group
// of its own protects it from a terminal's Ctrl-C until then.
func dieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
