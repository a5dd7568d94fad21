package main

import (
	"fmt"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"

	"spillway/internal/job"
)

// topColumn is one column of top.
type topColumn struct {
	title string
	need  int // 0 is most important; the column with the highest number is dropped first
	right bool
	text  func(topRow) string
	has   func(topRow) bool // the column is shown if a gateway has it; nil: always
}

func count(of func(topRow) int64) func(topRow) string {
	return func(r topRow) string { return job.CountText(of(r)) }
}

// topColumns are in screen order. The first starts with space for the mark of the selected gateway, the last
// takes the remaining width.
var topColumns = []topColumn{
	{"  GATEWAY", 0, false, func(r topRow) string { return "  " + r.Gateway }, nil},
	{"LIMITS", 10, false, func(r topRow) string { return r.LimitsText() }, nil},
	{"RATE", 3, true, func(r topRow) string { return fmt.Sprintf("%.1f/s", r.Rate1m) }, nil},
	{"LAST 2 MINUTES", 8, false, topRow.sparkline, nil},
	{"QUEUED", 2, true, count(func(r topRow) int64 { return r.Queued }), nil},
	{"LANES", 14, true, topRow.lanes, topRow.hasLanes},
	{"IN FLIGHT", 5, true, count(func(r topRow) int64 { return r.InFlight }), nil},
	{"RETRYING", 11, true, count(func(r topRow) int64 { return r.Retrying }), nil},
	{"PENDING", 9, true, count(func(r topRow) int64 { return r.Pending }), nil},
	{"SCHEDULED", 13, true, count(func(r topRow) int64 { return r.Scheduled }), nil},
	{"WAITING FOR ROOM", 7, true, count(func(r topRow) int64 { return r.ForRoom() }), nil},
	{"DONE", 12, true, count(func(r topRow) int64 { return r.Done }), nil},
	{"PARKED", 4, true, count(func(r topRow) int64 { return r.Dead().Jobs }), nil},
	{"ETA", 6, true, topRow.eta, nil},
	{"STATE", 1, false, func(r topRow) string { text, _ := r.state(); return text }, nil},
}

// there reports whether a column is shown for these gateways, space permitting.
func (c topColumn) there(rows []topRow) bool { return c.has == nil || slices.ContainsFunc(rows, c.has) }

func (r topRow) hasLanes() bool { return r.Lanes != nil }

// lanes returns how many lanes have jobs in the queue.
func (r topRow) lanes() string {
	if r.Lanes == nil {
		return ""
	}
	return job.CountText(r.Lanes.Busy)
}

const (
	topGap = "  "
	// stateAtLeast is the width that the last column gets before others are dropped.
	stateAtLeast = 24
	// nameAtMost is the width to which a long name is cut before others are dropped.
	nameAtMost = 26
)

// topFit returns the width of each column in cells, zero for a dropped one.
func topFit(rows []topRow, width int) []int {
	widths := make([]int, len(topColumns))
	for i, c := range topColumns {
		if !c.there(rows) {
			continue
		}
		widths[i] = lipgloss.Width(c.title)
		for _, r := range rows {
			widths[i] = max(widths[i], lipgloss.Width(topPlain(c.text(r))))
		}
	}
	last := len(widths) - 1
	wish := widths[last]
	widths[last] = min(wish, stateAtLeast)
	if over := topWidth(widths) - width; over > 0 {
		widths[0] = max(widths[0]-over, min(widths[0], nameAtMost))
	}
	for need := len(topColumns) - 1; need > 0 && topWidth(widths) > width; need-- {
		for i, c := range topColumns {
			if c.need == need {
				widths[i] = 0
			}
		}
	}
	if widths[last] > 0 {
		widths[last] = min(wish, widths[last]+width-topWidth(widths))
	}
	widths[0] = min(widths[0], width)
	return widths
}

func topWidth(widths []int) int {
	sum := -len(topGap)
	for _, w := range widths {
		if w > 0 {
			sum += w + len(topGap)
		}
	}
	return sum
}

// topCells returns the shown cells of one line, each as wide as its column.
func topCells(widths []int, cell func(topColumn) string) []string {
	var parts []string
	for i, c := range topColumns {
		if widths[i] == 0 {
			continue
		}
		text := topCut(cell(c), widths[i])
		pad := strings.Repeat(" ", widths[i]-lipgloss.Width(text))
		if c.right {
			text, pad = pad, text
		}
		parts = append(parts, text+pad)
	}
	return parts
}
