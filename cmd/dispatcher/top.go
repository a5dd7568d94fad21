package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
)

func topCommand(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "top [-g GATEWAY]...", Short: "Watch every gateway, live, in the terminal",
		Long: `Top shows the same as status, every second, with the calls of the last two minutes; a full bar is the limit.
On a narrow terminal, the least important columns are left out.

Keys: up and down (or k and j) select a gateway; enter shows its parked jobs by reason, with their money,
and with lanes, routes or classes also their waiting jobs and the lanes with the most jobs; esc goes back; p
pauses the gateway and r resumes it, both after a question; q quits. While Redis is away, the last figures
stay, with a note.`,
		Example: "  dispatcher top\n  dispatcher top -g stripe -g adyen",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.top(cmd.Context(), names) },
	}
	gatewaysFlag(cmd, &names, "show this `GATEWAY` only; repeatable (default: all of the file)")
	return cmd
}

func (p *program) top(ctx context.Context, names []string) error {
	if p.JSON() || !p.InTerminal || !p.OutTerminal {
		return cli.Usage(`use "dispatcher status" there, with -o json for programs; "watch dispatcher status" repeats it`,
			"top needs a terminal to draw on and to read keys from, and has no JSON")
	}
	src := &topSource{p: p, names: names}
	if p.server == "" {
		cfg, err := p.loadShared()
		if err == nil {
			_, err = desk.Choose(cfg, names)
		}
		if err != nil {
			return err
		}
	}
	defer src.close()
	return p.draw(ctx, src)
}

// draw shows the gateways until a key or signal ends it. Reads in progress end with it.
func (p *program) draw(ctx context.Context, src topGateways) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	end, err := tea.NewProgram(topModel{ctx: within, src: src, now: time.Now()}, tea.WithContext(ctx), tea.WithInput(p.In), tea.WithOutput(p.Out),
		tea.WithEnvironment(topEnvironment(os.Environ())), tea.WithoutSignalHandler()).Run()
	if m, ok := end.(topModel); ok && m.fatal != nil {
		return m.fatal
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &job.Error{Code: job.CodeFailed, Message: "the terminal could not be used", Err: err, Hint: `"dispatcher status" needs none`}
	}
	return nil
}

// topEnvironment sets NO_COLOR to the only form that the library accepts: for people any value means yes.
func topEnvironment(env []string) []string {
	for _, one := range env {
		if value, ok := strings.CutPrefix(one, "NO_COLOR="); ok && value != "" {
			return append(slices.Clone(env), "NO_COLOR=1")
		}
	}
	return env
}

// topRow is one gateway as read at one time.
type topRow struct {
	desk.Watched
	largest *desk.Lanes // the lanes with the most jobs; nil if it has none, or its page is not shown
}

// topSource reads the gateways, here or at the dispatcher of --server. It connects on first use.
type topSource struct {
	p     *program
	names []string

	mu sync.Mutex
	at remote.Desk
}

// topPatience bounds one read.
const topPatience = 3 * time.Second

func (s *topSource) open(ctx context.Context) (remote.Desk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		at, err := s.p.at(ctx)
		if err != nil {
			return nil, err
		}
		s.at = at
	}
	return s.at, nil
}

func (s *topSource) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != nil {
		s.at.Close()
	}
}

// topLanes is the most lanes on a gateway's page.
const topLanes = 10

func (s *topSource) look(ctx context.Context, page string) ([]topRow, error) {
	d, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, topPatience)
	defer cancel()
	all, err := remote.Watch.Ask(ctx, d, remote.At{Gateways: s.names})
	if err != nil {
		return nil, err
	}
	rows := make([]topRow, len(all.Gateways))
	for i, one := range all.Gateways {
		rows[i] = topRow{Watched: one}
		if one.Gateway != page || one.Lanes == nil {
			continue
		}
		lanes, err := remote.Lanes.Ask(ctx, d, remote.LanesOf{Gateway: page, Top: topLanes, Glance: true})
		if err != nil {
			all.Damaged = append(all.Damaged, err.Error())
			continue
		}
		rows[i].largest = &lanes
	}
	if len(all.Damaged) > 0 {
		return rows, errors.New(strings.Join(all.Damaged, "; "))
	}
	return rows, nil
}

func (s *topSource) act(ctx context.Context, what topAct, gateway string) error {
	d, err := s.open(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, topPatience)
	defer cancel()
	q := remote.SteerOf{GatewayAct: steering(gateway, "at a key of top")}
	op := remote.Resume
	if what != topResume {
		op = remote.Pause
		q.Shown = "by " + q.By
	}
	_, err = op.Ask(ctx, d, q)
	return err
}

// away reports whether an error may resolve itself.
func away(err error) bool {
	return job.CodeOf(redisdb.Coded(err)) == job.CodeUnavailable || errors.Is(err, context.DeadlineExceeded)
}

// troubleText says in one line what is wrong, and since when.
func troubleText(err error, since, now time.Time) string {
	what := "Redis can't be read"
	if away(err) {
		what = "Redis is away"
	}
	return fmt.Sprintf("%s since %s (%s): %s", what, job.ClockTime(since), cli.Short(now.Sub(since)), redisdb.Coded(err))
}

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
