package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"spillway/internal/testkit"
)

// rlimit is a limit that a process has on its open files: the kernel's struct rlimit64.
type rlimit struct{ now, most uint64 }

const nofile = 7 // RLIMIT_NOFILE

// prlimit is the system call: it reads a process's limit, or sets it.
func prlimit(pid int, set, was *rlimit) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), nofile, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(was)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("prlimit of process %d: %w", pid, errno)
	}
	return nil
}

func descriptors(pid int) (was rlimit, err error) {
	err = prlimit(pid, nil, &was)
	return was, err
}

func limitDescriptors(pid int, to rlimit) error { return prlimit(pid, &to, nil) }

// used is how many descriptors a process has open.
func used(pid int) uint64 {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)) // none where it has gone
	return uint64(len(list))
}

// TestAnotherProcessIsLeftWithoutDescriptors and has them again.
func TestAnotherProcessIsLeftWithoutDescriptors(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "read line; exec 9</dev/null && exit 7; exit 8")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = testkit.Start(cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	was, err := descriptors(cmd.Process.Pid)
	if n := used(cmd.Process.Pid); err != nil || n < 3 || was.now < n {
		t.Errorf("a shell has %d descriptors open of %+v, %v", n, was, err)
	}
	if err := limitDescriptors(cmd.Process.Pid, rlimit{3, was.most}); err != nil {
		t.Error(err)
	}
	if now, err := descriptors(cmd.Process.Pid); err != nil || now != (rlimit{3, was.most}) {
		t.Errorf("its limit is %+v, %v", now, err)
	}
	_, _ = in.Write([]byte("go\n"))
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() == 7 {
		t.Error("it could open one more")
	}
}
