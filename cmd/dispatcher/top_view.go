package main

import (
	"fmt"
	"math"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// The terminal's own 16 colours, which its user has chosen; without colours they are omitted.
var (
	topGood   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	topWarn   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	topBad    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	topFaint  = lipgloss.NewStyle().Faint(true)
	topStrong = lipgloss.NewStyle().Bold(true)
)

const topKeys = "q quit  p pause  r resume  up/down choose  enter parked jobs and lanes"

const topKeysDetail = "q quit  p pause  r resume  up/down choose  esc back"

// View draws the screen within the terminal's size.
func (m topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "dispatcher top"
	return v
}

func (m topModel) lines() []string {
	if m.width == 0 {
		return nil
	}
	head := []string{topStrong.Render(m.cut("dispatcher top  " + job.ClockTime(m.now) + m.missing()))}
	if m.trouble != nil {
		head = append(head, topBad.Render(m.cut(troubleText(m.trouble, m.since, m.now))))
	}
	foot := []string{m.question(), topFaint.Render(m.cut(m.keys()))}
	body := m.body(max(m.height-len(head)-len(foot), 2))
	all := append(append(head, body...), foot...)
	return all[:min(len(all), m.height)]
}

// missing names the columns for which there is no room.
func (m topModel) missing() string {
	if m.detail || len(m.rows) == 0 {
		return ""
	}
	var titles []string
	for i, width := range topFit(m.rows, m.width) {
		if width == 0 && topColumns[i].there(m.rows) {
			titles = append(titles, strings.ToLower(topColumns[i].title))
		}
	}
	if len(titles) == 0 {
		return ""
	}
	return "  no room for: " + strings.Join(titles, ", ")
}

func (m topModel) keys() string {
	if m.detail {
		return topKeysDetail
	}
	return topKeys
}

func (m topModel) question() string {
	if m.ask == "" {
		return m.cut(m.said)
	}
	return topWarn.Render(m.cut(fmt.Sprintf("%s %s? y/n", m.ask, m.asked)))
}

func (m topModel) body(lines int) []string {
	switch {
	case len(m.rows) == 0 && m.trouble == nil:
		return []string{m.cut("asking Redis …")}
	case len(m.rows) == 0:
		return nil
	case m.detail:
		all := append(m.parked(m.rows[m.selected]), m.waiting(m.rows[m.selected])...)
		if len(all) <= lines {
			return all
		}
		return append(all[:lines-1], topFaint.Render(m.cut("more than fits here: dispatcher dlq stats, status and lane list -g "+m.rows[m.selected].Gateway)))
	}
	return m.table(lines)
}

// table returns the header and as many gateways as fit, including the selected one.
func (m topModel) table(lines int) []string {
	widths := topFit(m.rows, m.width)
	shown := lines - 1
	first := max(0, min(m.selected-shown/2, len(m.rows)-shown))
	out := []string{topFaint.Render(strings.Join(topCells(widths, func(c topColumn) string { return c.title }), topGap))}
	for i := first; i < min(first+shown, len(m.rows)); i++ {
		out = append(out, m.row(widths, i))
	}
	whole := m.whole(m.rows[m.selected], widths)
	return append(out, whole[:min(len(whole), lines-len(out))]...)
}

// whole returns the selected gateway's name and state, if its row abbreviates them.
func (m topModel) whole(r topRow, widths []int) []string {
	state, _ := r.state()
	last := len(topColumns) - 1
	if lipgloss.Width(topColumns[0].text(r)) <= widths[0] && lipgloss.Width(topPlain(state)) <= widths[last] {
		return nil
	}
	lines := []string{""}
	for _, line := range cli.Wrap(topPlain(r.Gateway+": "+state), m.width, 2) {
		lines = append(lines, m.cut(line))
	}
	return lines
}

// row marks the selected gateway not only by colour, and colours only the state.
func (m topModel) row(widths []int, i int) string {
	r := m.rows[i]
	cells := topCells(widths, func(c topColumn) string { return c.text(r) })
	plain := lipgloss.NewStyle()
	_, state := r.state()
	if i == m.selected {
		cells[0] = topCut(">"+strings.TrimPrefix(cells[0], " "), widths[0])
		plain, state = topStrong, state.Bold(true)
	}
	for j := range cells {
		style := plain
		if j == len(cells)-1 && widths[len(widths)-1] > 0 {
			style = state
		}
		cells[j] = style.Render(cells[j])
	}
	return strings.Join(cells, topGap)
}

// parked returns the selected gateway's parked jobs by reason, with their money.
func (m topModel) parked(r topRow) []string {
	out := []string{topStrong.Render(m.cut(r.Gateway + ": parked jobs")), topFaint.Render(m.cut(fmt.Sprintf("%-16s %12s  %s", "REASON", "JOBS", "MONEY")))}
	var all job.Totals
	for _, reason := range job.DeadReasons() {
		of := r.parkedAs(reason)
		all.Add(of)
		if of.Jobs > 0 {
			out = append(out, m.sums(reason.Words(), of)...)
		}
	}
	for _, line := range m.sums("all", all) {
		out = append(out, topStrong.Render(line))
	}
	wait := r.parkedAs(job.Rejected)
	switch {
	case all.Jobs+wait.Jobs == 0:
		return append(out[:1], "none")
	case wait.Jobs > 0:
		out = append(append(out, ""), m.sums(job.ForRoom, wait)...)
	}
	return append(out, "", topFaint.Render(m.cut("see them with: dispatcher dlq list -g "+r.Gateway)))
}

// waiting returns how the selected gateway's queue is divided, and its lanes with the most jobs.
func (m topModel) waiting(r topRow) (out []string) {
	text := r.PartsText()
	if text == "" {
		return nil
	}
	out = append(out, "")
	for _, line := range cli.Wrap(topPlain("in the queue: "+text), m.width, 2) {
		out = append(out, m.cut(line))
	}
	if r.largest == nil || len(r.largest.Lanes) == 0 {
		return out
	}
	out = append(out, topFaint.Render(m.cut(fmt.Sprintf("%-24s %12s %10s  %s", "LANE", "QUEUED", "IN FLIGHT", "KEPT BACK"))))
	for _, l := range r.largest.Lanes {
		out = append(out, m.cut(fmt.Sprintf("%-24s %12s %10s  %s", topCut(l.Name(), 24), job.CountText(l.Queued), inFlightText(l.InFlight), m.keptBack(l))))
	}
	if !r.largest.Exact {
		out = append(out, topFaint.Render(m.cut(job.CountText(r.largest.Looked)+" lanes were looked at, and there are more: dispatcher lane list -g "+r.Gateway)))
	}
	return out
}

// keptBack says until when a lane is not called, and why; empty if it may be.
func (m topModel) keptBack(l desk.LaneRow) string {
	switch text := l.HoldText(); {
	case text != "":
		return text
	case l.Until != nil:
		return "throttled for " + cli.Short(l.Until.Sub(m.now))
	}
	return ""
}

// parkedAs returns the jobs parked for one reason, with their money.
func (r topRow) parkedAs(reason job.Reason) job.Totals {
	of := r.Money[reason]
	of.Jobs = r.Parked[string(reason)]
	return of
}

// sums returns jobs and their money on one line, or a line for each currency if that is too long: amounts are
// never cut.
func (m topModel) sums(name string, of job.Totals) []string {
	head, money := fmt.Sprintf("%-16s %12s  ", name, job.CountText(of.Jobs)), of.Money()
	if len(head)+len(money) <= m.width {
		return []string{head + money}
	}
	lines := []string{m.cut(head)}
	for part := range strings.SplitSeq(money, ", ") {
		indent := max(0, min(len(head), m.width-len(part)))
		lines = append(lines, m.cut(strings.Repeat(" ", indent)+part))
	}
	return lines
}

// state says whether the gateway is called and, if not, why.
func (r topRow) state() (string, lipgloss.Style) {
	h, held, left := r.Glance.Hold, r.HeldUntil != nil, ""
	if held {
		left = cli.Short(h.HeldUntil.Sub(r.Glance.Now))
	}
	switch {
	case h.Barred:
		return "stopped: " + h.PauseWhy, topBad
	case h.Paused:
		return "paused: " + h.PauseWhy, topWarn
	case h.Denied:
		return "denied, " + dispatch.Cause(h), topBad
	case h.Circuit && held:
		return "circuit open for " + left + ": " + strings.TrimPrefix(h.Reason, "circuit open: "), topBad
	case h.Circuit:
		return "circuit open, one call goes ahead: " + strings.TrimPrefix(h.Reason, "circuit open: "), topBad
	case held && h.Endless:
		return "held, tried again in " + left + ": " + h.Reason, topBad
	case held:
		return "held for " + left + ": " + h.Reason, topBad
	case h.Probing:
		return "hold over, one call goes ahead: " + h.Reason, topWarn
	case r.ETASeconds == nil:
		return r.ETAWhy, topBad
	case r.Queued+r.InFlight == 0 && r.Rate1m == 0:
		return "idle", topFaint
	case r.InFlight == 0 && r.Rate1m == 0:
		return "no call in the last minute", topWarn
	}
	return "running", topGood
}

func (r topRow) eta() string {
	return etaText(r.ETASeconds)
}

// bars are bars of growing height, in eighths.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// sparkline draws the calls of the last two minutes. A full bar is the limit, and a single call is visible.
func (r topRow) sparkline() string {
	most := math.Inf(1)
	for _, l := range r.Glance.Limits {
		most = min(most, float64(l.N)/l.Window.Seconds()*ledger.CallSpan.Seconds())
	}
	line := make([]rune, len(r.Calls))
	for i, n := range r.Calls {
		full := float64(n) / most
		line[i] = bars[min(int(math.Ceil(full*8)), 8)]
	}
	return string(line)
}

func (m topModel) cut(text string) string { return topCut(text, m.width) }

// topPlain returns a text in one line without control characters: gateways' answers must not control the
// terminal.
func topPlain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// topCut returns a text in one line of at most so many cells.
func topCut(text string, cells int) string {
	plain := topPlain(text)
	if lipgloss.Width(plain) <= cells {
		return plain
	}
	if cells <= 0 {
		return ""
	}
	runes := []rune(plain)
	runes = runes[:min(len(runes), cells)]
	for len(runes) > 0 && lipgloss.Width(string(runes))+1 > cells {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}
