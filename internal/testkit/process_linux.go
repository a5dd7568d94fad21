package testkit

import "syscall"

// dieWithUs has the kernel kill the child when the test process ends, however that happens. A process group
// of its own keeps a terminal's Ctrl-C away from it until then.
func dieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
