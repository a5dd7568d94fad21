package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	if v.status, _, err = command(ctx, dispatcher, config, "status"); err != nil {
		return v, err
	}
	if v.job, _, err = command(ctx, dispatcher, config, "job", id(0), "-g", "m0000"); err != nil {
		return v, err
	}
	if v.console, err = page(ctx, url+"/", nothing); err != nil {
		return v, err
	}
	v.metrics, err = page(ctx, url+"/metrics", func(r io.Reader) error {
		s, err := slotsOf(r)
		v.unused = s.unused / s.granted
		return err
	})
	return v, err
}

// command runs the program: how long it took, and the most memory that it had, in MiB.
func command(ctx context.Context, dispatcher, config string, args ...string) (took time.Duration, mib float64, err error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, dispatcher, append(args, "-c", config, "-o", "json")...)
	cmd.Stdout, cmd.Stderr = &out, &out
	took, mib, err = watched(cmd)
	if err != nil {
		text := out.Bytes()
		err = fmt.Errorf("dispatcher %s: %w\n%s", args[0], err, text[max(len(text)-2000, 0):])
	}
	return took, mib, err
}

// page gets a page and has it read: how long both took.
func page(ctx context.Context, url string, read func(io.Reader) error) (time.Duration, error) {
	begun := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", url, res.Status)
	}
	err = read(res.Body)
	return time.Since(begun), err
}

// nothing reads a page and keeps nothing of it.
func nothing(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// slots are how many were granted, and in how many of these no call was made.
type slots struct{ granted, unused float64 }

// slotsOf is what /metrics says of them.
func slotsOf(metrics io.Reader) (s slots, err error) {
	sums := map[string]float64{}
	for lines := bufio.NewScanner(metrics); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		var n float64
		if _, value, ok := strings.Cut(rest, "} "); ok {
			_, _ = fmt.Sscan(value, &n)
		}
		sums[name] += n
	}
	s = slots{sums["spillway_slots_granted_total"], sums["spillway_slots_released_total"] + sums["spillway_slots_lost_total"]}
	if s.granted == 0 {
		return s, errors.New("/metrics tells of no slot")
	}
	return s, nil
}
