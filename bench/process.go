package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// running is one `dispatcher run` that serves its API.
type running struct {
	cmd   *exec.Cmd
	url   string // of its API
	began time.Time
	ready time.Duration // from its start
}

// runDispatcher starts the program in dir with this configuration, and waits until it serves. Its state directory is its own, as on a machine of its own.
func runDispatcher(ctx context.Context, dir, config string) (*running, error) {
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	state, err := os.MkdirTemp(filepath.Dir(config), "state-")
	if err != nil {
		return nil, err
	}
	r := &running{url: "http://" + listen, began: time.Now()}
	r.cmd = exec.CommandContext(ctx, filepath.Join(dir, "dispatcher"), "run", "-c", config, "--listen", listen, "-q", "--log-level", "error")
	r.cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+state)
	r.cmd.Stderr = os.Stderr
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	if err := r.serves(ctx); err != nil {
		r.stop()
		return nil, err
	}
	r.ready = time.Since(r.began)
	return r, nil
}

// runDispatchers starts so many of them, one after the other.
func runDispatchers(ctx context.Context, n int, dir, config string) (all []*running, err error) {
	for range n {
		r, err := runDispatcher(ctx, dir, config)
		if err != nil {
			stopAll(all)
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// serves waits until the process is ready.
func (r *running) serves(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		res, err := http.Get(r.url + "/readyz")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("the dispatcher was not ready within a minute")
}

// worked is the processor time that the process has taken.
func (r *running) worked() time.Duration { return processorTime(r.cmd.Process.Pid) }

// stop asks the process to end, and waits until it has.
func (r *running) stop() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	_ = r.cmd.Wait()
}

func stopAll(all []*running) {
	for _, r := range all {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, r := range all {
		_ = r.cmd.Wait()
	}
}

// enqueueFrom has the program in dir take jobs in; args are added to its command line.
func enqueueFrom(ctx context.Context, dir, config string, jobs io.Reader, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "enqueue"), append([]string{"-c", config, "-f", "-", "-q"}, args...)...)
	cmd.Stdin = jobs
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("enqueue: %w\n%s", err, out)
	}
	return nil
}

// freeAddress returns an address of this machine on which nothing listens.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// processorTime is what a process has taken, in Linux's hundredths of a second.
func processorTime(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	var user, system int64
	if f := strings.Fields(rest); len(f) > 12 {
		_, _ = fmt.Sscan(f[11]+" "+f[12], &user, &system)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// most is the most memory that a process has had, in MiB; 0 once it is over.
func most(pid int) (mib float64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if size, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, _ = fmt.Sscan(size, &mib)
		}
	}
	return mib / 1024
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func processors() float64 { return float64(runtime.NumCPU()) }

// machineTime is what all processors of this machine have worked since it began, whoever for.
func machineTime() time.Duration {
	text, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(text), "\n")
	var sum int64
	for i, field := range strings.Fields(first) {
		var n int64
		if _, err := fmt.Sscan(field, &n); err == nil && i != idleField && i != waitingField && i < guestField {
			sum += n
		}
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

// Fields of the first line of /proc/stat that are no work, or counted in another field.
const idleField, waitingField, guestField = 4, 5, 9
