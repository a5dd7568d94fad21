package main

import (
	"fmt"
	"net/http"
	"slices"
)

const lanesHead = "| | of the allowed rate | seconds | 429s | fullest rolling window | the first job of a small lane, after s: median | longest | jobs done | lost |\n|---|---:|---:|---:|---:|---:|---:|---:|---|"

// laneRow is a line of the table of lanes.
func (f finish) laneRow() string {
	waits := f.waits()
	return fmt.Sprintf("| %s | %.1f %% | %.1f | %d | %d | %.2f | %.2f | %d | %s |", f.name, f.share(), f.seconds, f.stats.TooMany, f.fullest(),
		waits[len(waits)/2], waits[len(waits)-1], f.stats.Charged, f.fate())
}

// waits is how many seconds after the first call that was accepted each small lane had its first one, in order. A lane that had none waited to the end.
func (f finish) waits() []float64 {
	waits := make([]float64, smallLanes)
	for lane := range waits {
		waits[lane] = f.seconds
	}
	seen := map[int]bool{}
	var start int64
	for _, c := range f.calls {
		if c.Status != http.StatusOK || !c.Charged {
			continue
		}
		if start == 0 {
			start = c.At
		}
		var i int
		if _, err := fmt.Sscanf(c.Key, "inv-%d", &i); err != nil {
			continue
		}
		if lane := laneOf(i, f.jobs); lane > 0 && !seen[lane] {
			seen[lane], waits[lane-1] = true, float64(c.At-start)/1e6
		}
	}
	slices.Sort(waits)
	return waits
}
