package chaos

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// grace is how long the previous limit may be in use after a change. A change takes effect within a second at every dispatcher that
// can hear of it; a busy machine may need another second.
const grace = 2 * time.Second

// overtaken returns from when on the limit before a change can't be in use: the end of the first grace during which
// nothing kept the dispatchers from hearing of the change.
func overtaken(changed time.Time, disturbed []span) time.Time {
	slices.SortFunc(disturbed, func(a, b span) int { return a.from.Compare(b.from) })
	from := changed
	for _, d := range disturbed {
		if d.from.Before(from.Add(grace)) && d.to.After(from) {
			from = d.to
		}
	}
	return from.Add(grace)
}

// reign is the time within which a set of limits may have been in use.
type reign struct {
	span
	limits []provider.Limit
}

// reigns returns when each of a gateway's limits may have been in use. A change whose command failed may have been
// made or not, so it does not end the previous one.
func reigns(changes []change, disturbed []span) []reign {
	list := make([]reign, len(changes))
	for i, ch := range changes {
		list[i] = reign{span{ch.begin, time.Unix(1<<40, 0)}, ch.limits}
		for _, next := range changes[i+1:] {
			if next.sure {
				list[i].to = overtaken(next.end, disturbed)
				break
			}
		}
	}
	return list
}

// allowed returns how many calls a window of this length, from begin to end, may hold: the most that any of the limits allows that may
// have been in use in it.
func allowed(window time.Duration, list []reign, begin, end time.Time) int {
	most := 0
	for _, r := range list {
		if r.from.After(end) || r.to.Before(begin) {
			continue
		}
		n := math.MaxInt
		for _, l := range r.limits {
			if l.Window == window {
				n = l.N
			}
		}
		most = max(most, n)
	}
	return most
}

// crowded returns the most calls in any rolling window of a length, and a line for each window that held more than was
// allowed in it.
func crowded(calls []provider.CallLine, window time.Duration, list []reign) (most int, faults []string) {
	first := 0
	for i, c := range calls {
		for time.Duration(c.At-calls[first].At)*time.Microsecond >= window {
			first++
		}
		n := i - first + 1
		most = max(most, n)
		if may := allowed(window, list, time.UnixMicro(calls[first].At), time.UnixMicro(c.At)); n > may {
			faults = append(faults, fmt.Sprintf("%d calls in the %v until %s, allowed were %d", n, window,
				time.UnixMicro(c.At).Format("15:04:05.000000"), may))
		}
	}
	return most, faults
}

// noticed is how long the line may take on a busy machine to notice that a client has gone.
const noticed = time.Second

// together returns the most exchanges under way at once. An exchange that lasts longer than its lease counts until the end of the lease: its
// dispatcher is stalled, and can't hang up. If the client has gone, the exchange may have ended some time before the line noticed it.
func together(list []testkit.Exchange, lease time.Duration) int {
	type step struct {
		at time.Time
		by int
	}
	var steps []step
	for _, x := range list {
		end := x.From.Add(lease)
		if x.To.Before(end) {
			end = x.To
		}
		if gone := x.To.Add(-noticed); x.Gone && gone.Before(end) {
			end = gone
		}
		if end.Before(x.From) {
			continue
		}
		steps = append(steps, step{x.From, 1}, step{end, -1})
	}
	slices.SortFunc(steps, func(a, b step) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.by - b.by
	})
	n, most := 0, 0
	for _, s := range steps {
		n += s.by
		most = max(most, n)
	}
	return most
}

func TestTheOracleOfLimits(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	var calls []provider.CallLine
	for i := range 50 { // 5 a second for 10 s
		calls = append(calls, provider.CallLine{At: start.UnixMicro() + int64(i)*200_000})
	}
	five, four := limits("5/s"), limits("4/s")
	for _, tc := range []struct {
		name      string
		changes   []change
		disturbed []span
		faults    bool
	}{
		{name: "as much as is allowed", changes: []change{{limits: five}}},
		{name: "one more than is allowed", changes: []change{{limits: four}}, faults: true},
		{name: "lowered at the end", changes: []change{{limits: five}, {begin: at(9), end: at(9.1), limits: four, sure: true}}},
		{name: "lowered in the middle", changes: []change{{limits: five}, {begin: at(5), end: at(5.1), limits: four, sure: true}}, faults: true},
		{name: "perhaps lowered", changes: []change{{limits: five}, {begin: at(5), end: at(5.1), limits: four}}},
		{name: "lowered, and nobody could hear of it",
			changes:   []change{{limits: five}, {begin: at(5), end: at(5.1), limits: four, sure: true}},
			disturbed: []span{{at(7.5), at(9)}, {at(6), at(8)}}},
		{name: "raised too late", changes: []change{{limits: four}, {begin: at(5), end: at(5.1), limits: five, sure: true}}, faults: true},
		{name: "raised at the start", changes: []change{{limits: four}, {begin: at(0.5), end: at(5), limits: five, sure: true}}},
		{name: "no limit of this length", changes: []change{{limits: limits("4/m")}}},
	} {
		most, faults := crowded(calls, time.Second, reigns(tc.changes, tc.disturbed))
		if most != 5 || (len(faults) > 0) != tc.faults {
			t.Errorf("%s: %d calls in a window, %d faults", tc.name, most, len(faults))
		}
	}
	x := func(from, to float64) testkit.Exchange { return testkit.Exchange{From: at(from), To: at(to)} }
	if n := together([]testkit.Exchange{x(0, 2), x(1, 3), x(2, 9), x(5, 6), x(5, 7)}, 10*time.Second); n != 3 {
		t.Errorf("%d exchanges at once, want 3", n)
	}
	if n := together([]testkit.Exchange{x(0, 9), x(5, 6)}, 3*time.Second); n != 1 {
		t.Errorf("%d exchanges at once, want 1: the first one's lease has run out", n)
	}
	gone := testkit.Exchange{From: at(0), To: at(4), Gone: true}
	if n := together([]testkit.Exchange{gone, x(2, 3)}, 10*time.Second); n != 2 {
		t.Errorf("%d exchanges at once, want 2: the client was still there", n)
	}
	if n := together([]testkit.Exchange{gone, x(3.5, 5)}, 10*time.Second); n != 1 {
		t.Errorf("%d exchanges at once, want 1: the client may have gone before", n)
	}
}
