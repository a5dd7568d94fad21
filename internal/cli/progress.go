package cli

import (
	"time"

	"github.com/schollz/progressbar/v3"
)

// Progress is a bar on standard error, or nothing off a terminal and with -q.
type Progress struct{ bar *progressbar.ProgressBar }

// ProgressParams configure a bar.
type ProgressParams struct {
	What  string // what is done, as in "enqueueing"
	Total int64  // in the unit of Set; less than 1 means unknown: a spinner
	Bytes bool   // the unit is bytes, not jobs
	Quiet bool   // -q: no bar
}

// leastTitle is how much of What is shown on the narrowest terminal, in columns.
const leastTitle = 8

// NewProgress starts a bar.
func NewProgress(s Streams, p ProgressParams) *Progress {
	if !s.ErrTerminal || p.Quiet {
		return &Progress{}
	}
	total := p.Total
	if total < 1 {
		total = -1
	}
	bar, most := 20, maxCell
	if s.ErrWidth > 0 && s.ErrWidth < 120 { // count, rate and time need the rest
		bar, most = 10, max(s.ErrWidth-66, leastTitle)
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(s.Err),
		progressbar.OptionSetDescription(shorten(p.What, most)),
		progressbar.OptionShowBytes(p.Bytes),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(bar),
	}
	if !p.Bytes { // bytes show their rate anyway
		options = append(options, progressbar.OptionShowIts(), progressbar.OptionSetItsString("jobs"))
	}
	return &Progress{progressbar.NewOptions64(total, options...)}
}

// Set shows the progress, in the unit of Total. Errors of the terminal are ignored.
func (p *Progress) Set(done int64) {
	if p.bar != nil {
		_ = p.bar.Set64(done)
	}
}

// Clear removes the bar before something else is written; the next Set shows it again.
func (p *Progress) Clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// Close ends the bar and removes it from the screen.
func (p *Progress) Close() {
	if p.bar != nil {
		_ = p.bar.Clear()
		_ = p.bar.Exit()
	}
}
