package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// views is how long people and programs wait for what they look at, while the gateways are busy.
type views struct {
	status, job, console, metrics time.Duration
	unused                        float64 // the share of the slots granted that no call was made in, as /metrics has it
}

// look takes each view once.
func look(ctx context.Context, dispatcher, config, url string) (v views, err error) {
	command := func(args ...string) (time.Duration, error) {
		begun := time.Now()
		cmd := exec.CommandContext(ctx, dispatcher, append(args, "-c", config, "-o", "json")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("dispatcher %s: %w\n%s", args[0], err, out)
		}
		return time.Since(begun), nil
	}
	page := func(path string, read func(io.Reader) error) (time.Duration, error) {
		begun := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
		if err != nil {
			return 0, err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("%s: %s", path, res.Status)
		}
		err = read(res.Body)
		return time.Since(begun), err
	}
	all := func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
	if v.status, err = command("status"); err != nil {
		return v, err
	}
	if v.job, err = command("job", id(0), "-g", "m0000"); err != nil {
		return v, err
	}
	if v.console, err = page("/", all); err != nil {
		return v, err
	}
	v.metrics, err = page("/metrics", func(r io.Reader) (err error) { v.unused, err = unused(r); return err })
	return v, err
}

// unused is the share of the slots granted that no call was made in.
func unused(metrics io.Reader) (float64, error) {
	sums := map[string]float64{}
	for lines := bufio.NewScanner(metrics); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		var n float64
		if _, value, ok := strings.Cut(rest, "} "); ok {
			_, _ = fmt.Sscan(value, &n)
		}
		sums[name] += n
	}
	granted := sums["spillway_slots_granted_total"]
	if granted == 0 {
		return 0, errors.New("/metrics tells of no slot")
	}
	return (sums["spillway_slots_released_total"] + sums["spillway_slots_lost_total"]) / granted, nil
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

// most is the most memory that a process has had, in MiB.
func most(pid int) (mib float64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if size, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, _ = fmt.Sscan(size, &mib)
		}
	}
	return mib / 1024
}
