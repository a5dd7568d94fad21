package dispatch

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// every repeats an upset.
func every(times int, from, apart time.Duration, u upset) (all []upset) {
	for i := range times {
		u.at = from + time.Duration(i)*apart
		all = append(all, u)
	}
	return all
}

// knownUpsets are schedules that once broke a limit, or stopped all calls without a reason.
var knownUpsets = map[string]upsets{
	"limits set live are forgotten with all data": {file: "40/1s", processes: 3, far: time.Millisecond, then: 15 * time.Second, all: slices.Concat(
		every(3, 3*time.Second, 500*time.Millisecond, upset{kind: sets, limits: "30/1s"}), []upset{{at: 6 * time.Second, kind: flushes}},
		every(3, 13*time.Second, 500*time.Millisecond, upset{kind: sets, limits: "30/1s"}), []upset{{at: 16300 * time.Millisecond, kind: flushes}})},
	"limits set live are lost with the tail": {file: "10/1s", processes: 2, far: time.Millisecond, then: 20 * time.Second, all: []upset{
		{at: 3 * time.Second, kind: sets, limits: "8/1s"}, {at: 4500 * time.Millisecond, kind: crashes, length: 2 * time.Second, tail: 1800 * time.Millisecond}}},
	"a fail-over loses a reset": {file: "10/1s", processes: 2, far: time.Millisecond, then: 20 * time.Second, all: []upset{
		{at: 3 * time.Second, kind: sets, limits: "8/1s"}, {at: 6 * time.Second, kind: resets},
		{at: 7500 * time.Millisecond, kind: failsOver, length: time.Second, tail: 1900 * time.Millisecond}}},
	"Redis is away for a minute": {file: "3/1s 200/1h", processes: 2, far: time.Millisecond, then: 15 * time.Second, all: []upset{
		{at: 5 * time.Second, kind: restarts, length: 70 * time.Second}}},
	"all stop, then Redis restarts": {file: "3/1s 200/1h", processes: 2, far: time.Millisecond, then: 15 * time.Second, all: []upset{
		{at: 5 * time.Second, kind: allLeave, length: 80 * time.Second}, {at: 10 * time.Second, kind: restarts, length: 40 * time.Second}}},
	"all stop, and Redis restarts an hour later": {file: "3/1s 200/1d", processes: 2, far: time.Millisecond, then: 15 * time.Second, all: []upset{
		{at: 5 * time.Second, kind: allLeave, length: time.Hour}, {at: 3590 * time.Second, kind: restarts, length: time.Second}}},
	"Redis fails over while nobody is there": {file: "3/1s 200/1h", processes: 1, far: time.Millisecond, then: 12 * time.Second, all: []upset{
		{at: 8606 * time.Millisecond, kind: allLeave, on: 2, length: 59868 * time.Millisecond}, {at: 34203 * time.Millisecond, kind: failsOver, length: 4111 * time.Millisecond, tail: 1426 * time.Millisecond}}},
	"all stop before they find that Redis restarted": {file: "4/1s 24/30s", processes: 1, far: time.Millisecond, then: 33 * time.Second, all: []upset{
		{at: 11831 * time.Millisecond, kind: crashes, length: 54687 * time.Millisecond, tail: 999 * time.Millisecond}, {at: 66754 * time.Millisecond, kind: allLeave, length: 13886 * time.Millisecond}}},
	"all is lost while the long window is left out": {file: "3/1s 200/1h", processes: 1, far: time.Millisecond, then: 12 * time.Second, all: []upset{
		{at: 12324 * time.Millisecond, kind: sets, limits: "2/1s"}, {at: 13171 * time.Millisecond, kind: flushes}}},
	"the long window is left out for a while": {file: "5/1s 30/90s", processes: 2, far: time.Millisecond, then: 95 * time.Second, all: []upset{
		{at: 8 * time.Second, kind: sets, limits: "4/1s"}, {at: 10 * time.Second, kind: resets}}},
	"two reloads leave the long window out for a while": {file: "5/1s 30/90s", processes: 2, far: time.Millisecond, then: 95 * time.Second, all: []upset{
		{at: 8 * time.Second, kind: reloads, limits: "4/1s"}, {at: 10 * time.Second, kind: reloads, limits: "5/1s 30/90s"}}},
	"Redis's clock is set back again and again": {file: "40/1s", processes: 2, far: 20 * time.Millisecond, then: 9 * time.Second,
		all: every(12, 3*time.Second, 6*time.Second, upset{kind: leaps, tail: -4 * time.Second})},
	"Redis's clock is set back by an hour": {file: "40/1s", processes: 2, far: 20 * time.Millisecond, then: 9 * time.Second,
		all: every(3, 3*time.Second, 10*time.Second, upset{kind: leaps, tail: -time.Hour})},
	"Redis's clock is set ahead": {file: "3/1s 200/1h", processes: 2, far: time.Millisecond, then: 15 * time.Second, all: []upset{
		{at: 5 * time.Second, kind: leaps, tail: 100 * time.Second}}},
	"a stall while the way to Redis stands still": {file: "40/1s", processes: 2, far: 20 * time.Millisecond, then: 5 * time.Second, all: slices.Concat(
		every(10, 4*time.Second, 3010*time.Millisecond, upset{kind: standsCut, length: 230 * time.Millisecond}),
		every(10, 36*time.Second, 3030*time.Millisecond, upset{kind: standsCut, length: 180 * time.Millisecond, on: 1}))},
	"Redis's clock runs fast": {file: "40/1s", processes: 2, far: time.Millisecond, then: 9 * time.Second, all: []upset{
		{at: 5 * time.Second, kind: slews, rate: 1.01, length: 10 * time.Second}}},
	"Redis's clock runs very fast": {file: "10/1s", processes: 2, far: time.Millisecond, then: 9 * time.Second, all: []upset{
		{at: 5 * time.Second, kind: slews, rate: 1.083, length: 10 * time.Second}}},
	"Redis's clock runs very fast, a process begins, and it runs very fast again": {file: "4/1s 24/30s", processes: 2, far: 20 * time.Millisecond, then: 20 * time.Second, all: []upset{
		{at: 5063 * time.Millisecond, kind: slews, rate: 1.08, length: 13820 * time.Millisecond}, {at: 13259 * time.Millisecond, kind: dies},
		{at: 15855 * time.Millisecond, kind: comes}, {at: 22518 * time.Millisecond, kind: slews, rate: 1.08, length: 13180 * time.Millisecond}}},
	"Redis's clock is set ahead while it is away": {file: "4/1s 24/30s", processes: 2, far: 5 * time.Millisecond, then: 65 * time.Second, all: []upset{
		{at: 6565 * time.Millisecond, kind: crashes, length: 39901 * time.Millisecond, tail: 1389 * time.Millisecond},
		{at: 14400 * time.Millisecond, kind: leaps, tail: 1466 * time.Millisecond}}},
	"Redis's clock is set ahead by little, and back by much": {file: "4/1s 24/30s", processes: 1, far: 20 * time.Millisecond, then: 33 * time.Second, all: []upset{
		{at: 3383 * time.Millisecond, kind: leaps, tail: 30 * time.Millisecond}, {at: 4999 * time.Millisecond, kind: leaps, tail: -87830 * time.Millisecond}}},
	"Redis's clock runs slow": {file: "10/1s", processes: 2, far: time.Millisecond, then: 9 * time.Second, all: []upset{
		{at: 5 * time.Second, kind: slews, rate: 0.92, length: 10 * time.Second}}},
	"a limit set comes after the reset": {file: "5/1s 30/90s", processes: 1, far: time.Millisecond, then: 20 * time.Second, all: []upset{
		{at: 5 * time.Second, kind: stuckSet, length: 8 * time.Second, limits: "5/1s"}}},
	"a pause comes after the resume": {file: "10/1s", processes: 1, far: time.Millisecond, then: 20 * time.Second, all: []upset{
		{at: 5 * time.Second, kind: stuckPause, length: 8 * time.Second}}},
	"a file with a longer window is read": {seed: 899, file: "10/1s", processes: 3, far: 5 * time.Millisecond, late: 40, then: 9 * time.Second, all: []upset{
		{at: 9437 * time.Millisecond, kind: reloads, on: 2, length: 572 * time.Millisecond, limits: "6/2s"}}},
	"a report of lateness is lost": {file: "3/1s 9/3s", processes: 2, far: time.Millisecond, late: 60, then: 9 * time.Second,
		all: every(8, 5*time.Second, 6*time.Second, upset{kind: failsOver, length: 200 * time.Millisecond, tail: 300 * time.Millisecond})},
}

// Schedules that once broke a limit, or stopped all calls without a reason, no longer do.
func TestKnownUpsetsBreakNothing(t *testing.T) {
	t.Parallel()
	for name, s := range knownUpsets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if wrong := tryUpsets(t, s, nil); len(wrong) > 0 {
				t.Error(strings.Join(wrong, "\n"))
			}
		})
	}
}
