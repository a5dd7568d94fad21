package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"spillway/internal/bucket"
	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// screen is a model of top without a terminal.
type screen struct {
	t *testing.T
	m topModel
	// next is the command that the last message returned, if any.
	next tea.Cmd
}

func (s *screen) send(msgs ...tea.Msg) {
	s.t.Helper()
	for _, msg := range msgs {
		m, next := s.m.Update(msg)
		s.m, s.next = m.(topModel), next
	}
}

// press sends keys by their names.
func (s *screen) press(keys ...string) {
	s.t.Helper()
	named := map[string]tea.KeyPressMsg{"up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "enter": {Code: tea.KeyEnter},
		"esc": {Code: tea.KeyEscape}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl}}
	for _, key := range keys {
		msg, ok := named[key]
		if !ok {
			msg = tea.KeyPressMsg{Code: rune(key[0]), Text: key}
		}
		if msg.String() != key {
			s.t.Fatalf("the key %q is called %q", key, msg.String())
		}
		s.send(msg)
	}
}

// look makes the model read once.
func (s *screen) look() {
	s.t.Helper()
	msg := s.m.look()().(topLooked)
	for errors.Is(msg.err, context.DeadlineExceeded) || errors.Is(msg.err, os.ErrDeadlineExceeded) { // on a busy machine: then top reads again
		msg = s.m.look()().(topLooked)
	}
	s.send(msg)
}

func (s *screen) quits() bool {
	if s.next == nil {
		return false
	}
	_, ok := s.next().(tea.QuitMsg)
	return ok
}

// lines returns what is drawn, without colours.
func (s *screen) lines() []string {
	return strings.Split(escape.ReplaceAllString(s.m.View().Content, ""), "\n")
}

func (s *screen) wants(texts ...string) {
	s.t.Helper()
	all := strings.Join(s.lines(), "\n")
	for _, text := range texts {
		if !strings.Contains(all, text) {
			s.t.Errorf("no %q in\n%s", text, all)
		}
	}
}

// line returns the line with this text. There must be exactly one.
func (s *screen) line(with string) string {
	s.t.Helper()
	var found []string
	for _, l := range s.lines() {
		if strings.Contains(l, with) {
			found = append(found, l)
		}
	}
	if len(found) != 1 {
		s.t.Fatalf("%d lines with %q in\n%s", len(found), with, strings.Join(s.lines(), "\n"))
	}
	return found[0]
}

func newScreen(t *testing.T, src topGateways) *screen {
	t.Helper()
	s := &screen{t: t, m: topModel{ctx: t.Context(), src: src, now: time.Now()}}
	s.send(tea.WindowSizeMsg{Width: 250, Height: 24})
	return s
}

// source reads the rig's Redis.
func (r *rig) source() *topSource {
	src := &topSource{p: &program{Common: cli.Common{Config: r.file}, Streams: cli.Streams{Err: io.Discard}}}
	r.t.Cleanup(src.close)
	return src
}

func TestTopShowsWhatRedisKnows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.served()
	r.park(r.one, charge("a", "1050", ""), job.Refused, 402, "HTTP 402")
	r.reject(r.one, charge("b", "50", ""), charge("c", `"?"`, ""))
	g := r.gateway(r.one)
	g.Replay = config.ReplayManual
	later := charge("e", "1", "")
	later.At = time.Now().Add(time.Hour)
	r.accept(g, job.Enqueued, charge("d", "1", ""), later)
	span := time.Now().UnixMicro() / ledger.CallSpan.Microseconds()
	for ago, calls := range map[int64]int{3: 250, 4: 500, 15: 1} {
		r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).Rate(), strconv.FormatInt(span-ago, 10), calls).Err())
	}
	s := newScreen(t, r.source())
	s.wants("asking Redis")
	s.look()
	row := s.line(r.one)
	if !strings.HasPrefix(row, "> ") || !strings.Contains(row, "█▄") || !strings.Contains(row, "▁  ") || !strings.HasSuffix(strings.TrimSpace(row), "running") {
		t.Errorf("%q", row)
	}
	header := s.line("GATEWAY")
	for title, want := range map[string]string{"QUEUED": "1", "IN FLIGHT": "0", "SCHEDULED": "1", "WAITING FOR ROOM": "2", "PARKED": "1"} {
		end := len([]rune(header[:strings.Index(header, title)+len(title)]))
		if got := strings.TrimSpace(string([]rune(row)[end-len(title) : end])); got != want {
			t.Errorf("%s is %q, want %q", title, got, want)
		}
	}
	s.wants("100/s", "  "+r.two, "idle")
	s.press("enter")
	s.wants("refused                     1  EUR 10.50", "all                         1  EUR 10.50", "waiting for room            2  EUR 0.50, 1 job without an amount")
	s.press("down")
	s.wants(r.two+": parked jobs", "none")
	s.press("esc", "up")
	s.line(r.two)
}

func TestTopSaysWhyAGatewayIsNotCalled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pause(r.one)
	pacer, err := dispatch.Pacer(r.c, r.gateway(r.two), bucket.NewMetrics(nil))
	r.must(err)
	defer pacer.Close(r.ctx)
	_, err = pacer.Failed(r.ctx, job.Circuit{}, job.Failure{Kind: job.Wait, For: time.Hour, Written: true, Why: "HTTP 429"})
	r.must(err)
	s := newScreen(t, r.source())
	s.look()
	s.wants("paused: maintenance", "held for 59m", "s: HTTP 429")
	turns := func(change func(*dispatch.Glance)) {
		v := s.m.rows[1].Glance
		change(&v)
		s.m.rows[1].Status = desk.StatusOf(s.m.rows[1].Gateway, v, nil)
	}
	turns(func(v *dispatch.Glance) { v.Hold.Circuit = true })
	s.wants("circuit open for 59m")
	turns(func(v *dispatch.Glance) { v.Hold.HeldUntil = time.Time{} })
	s.wants("circuit open, one call goes ahead: HTTP 429")
	turns(func(v *dispatch.Glance) { v.Hold.Circuit, v.Hold.Probing = false, true })
	s.wants("hold over, one call goes ahead: HTTP 429")
	turns(func(v *dispatch.Glance) { v.Hold.Probing, v.Queued = false, 1 })
	s.wants("no call in the last minute")
}

func TestTopGoesOnWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	server := testkit.Server(t)
	r.configure(server.URL())
	server.Kill()
	s := newScreen(t, r.source())
	s.look()
	s.wants("Redis is away since ")
	if s.m.fatal != nil {
		t.Fatal(s.m.fatal)
	}
	s.press("p", "enter", "y", "up")
	server.Restart()
	s.look()
	s.line(r.one)
	if s.m.trouble != nil {
		t.Error(s.m.trouble)
	}
	server.Kill()
	s.look()
	since := s.m.since
	s.look()
	s.wants("Redis is away since " + job.ClockTime(since))
	s.line(r.one)
	s.press("p", "y")
	s.send(s.next())
	s.wants("could not pause " + r.one)
}

func TestTopEndsWhereWaitingIsInVain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).LiveLimits(), "limits", "nonsense", "version", 1).Err())
	s := newScreen(t, r.source())
	s.look()
	if s.m.fatal == nil || !s.quits() {
		t.Errorf("it goes on with %v", s.m.fatal)
	}
}

// recorder records the acts on gateways.
type recorder struct {
	rows []topRow
	did  []string
	err  error
}

func (r *recorder) look(context.Context, string) ([]topRow, error) { return r.rows, nil }

func (r *recorder) act(_ context.Context, what topAct, gateway string) error {
	r.did = append(r.did, string(what)+" "+gateway)
	return r.err
}

func row(name string, changes ...func(*dispatch.Glance)) topRow {
	v := dispatch.Glance{Standing: record.Standing{Now: time.Now(), Queued: 12}, Limits: []job.Limit{{N: 100, Window: time.Second}}}
	v.Admission = v.Limits
	for _, change := range changes {
		change(&v)
	}
	return topRow{Watched: desk.Watched{Status: desk.StatusOf(name, v, nil), Calls: make([]int64, 24)}}
}

func TestTopAsksBeforeItActs(t *testing.T) {
	t.Parallel()
	src := &recorder{rows: []topRow{row("one"), row("two")}}
	s := newScreen(t, src)
	s.press("p", "y") // nothing is there yet
	s.look()
	for _, no := range []string{"n", "esc", "enter", "p", "r", "down"} {
		s.press("p", no)
		s.wants("nothing was done")
	}
	if s.m.selected != 0 || s.m.detail || s.next != nil || len(src.did) > 0 {
		t.Fatalf("%+v did %v", s.m, src.did)
	}
	s.press("down", "down", "r", "y")
	s.send(s.next())
	s.wants("two resumed")
	s.press("up", "up", "p", "Y")
	s.send(s.next())
	s.wants("one paused")
	if want := []string{"resume two", "pause one"}; !slices.Equal(src.did, want) {
		t.Errorf("did %v, want %v", src.did, want)
	}
}

// An act may take long. Meanwhile the keys for moving work, but no other act starts.
func TestTopMovesWhileItActs(t *testing.T) {
	t.Parallel()
	src := &recorder{rows: []topRow{row("one"), row("two")}}
	s := newScreen(t, src)
	s.look()
	s.press("p", "y")
	act := s.next
	s.press("down", "r")
	s.wants("still in progress")
	s.press("y", "enter")
	if s.m.selected != 1 || !s.m.detail || s.m.ask != "" || s.next != nil {
		t.Errorf("%+v", s.m)
	}
	s.send(act())
	s.wants("one paused")
	s.press("r", "y")
	s.send(s.next())
	if want := []string{"pause one", "resume two"}; !slices.Equal(src.did, want) {
		t.Errorf("did %v, want %v", src.did, want)
	}
}

func TestTopDoesWhatWasAnsweredBeforeItEnds(t *testing.T) {
	t.Parallel()
	src := &recorder{rows: []topRow{row("one")}, err: errors.New("no room")}
	s := newScreen(t, src)
	s.look()
	s.press("p", "y")
	act := s.next
	s.press("q")
	if s.quits() {
		t.Fatal("it ends before the gateway is paused")
	}
	s.send(act())
	if !s.quits() || !errors.Is(s.m.fatal, src.err) {
		t.Errorf("it goes on, or hides %v", s.m.fatal)
	}
	s = newScreen(t, src)
	s.look()
	s.press("p", "y", "q", "ctrl+c")
	if !s.quits() {
		t.Error("it does not end when told twice")
	}
}

// At every width, each gateway has its line. The least important columns are left out first.
func TestTopCutsColumnsNotLines(t *testing.T) {
	t.Parallel()
	held := row("adyen", func(v *dispatch.Glance) { v.Hold.Paused, v.Hold.PauseWhy = true, strings.Repeat("because ", 20) })
	s := newScreen(t, &recorder{rows: []topRow{row("stripe"), held}})
	s.look()
	before := len(topColumns)
	for width := 250; width > 0; width-- {
		s.send(tea.WindowSizeMsg{Width: width, Height: 24})
		lines := s.lines()
		if len(lines) < 6 || width > 3 && !strings.HasPrefix(lines[3], "  a") {
			t.Fatalf("width %d: %d lines:\n%s", width, len(lines), strings.Join(lines, "\n"))
		}
		for _, l := range lines {
			if lipgloss.Width(l) > width {
				t.Fatalf("width %d: %q has %d", width, l, lipgloss.Width(l))
			}
		}
		shown := 0
		for i, w := range topFit(s.m.rows, width) {
			if w > 0 {
				shown++
			}
			if w == 0 && topColumns[i].need < 5 && width >= 80 {
				t.Errorf("width %d: no %s", width, topColumns[i].title)
			}
		}
		if shown > before || width > 1 && !strings.HasPrefix(lines[2], ">") {
			t.Errorf("width %d: %d columns after %d, %q", width, shown, before, lines[2])
		}
		before = shown
	}
	if before != 1 {
		t.Errorf("%d columns in one cell", before)
	}
}

func TestTopKeepsTheSelectedGatewayInSight(t *testing.T) {
	t.Parallel()
	src := &recorder{}
	for i := range 50 {
		src.rows = append(src.rows, row(fmt.Sprintf("g%02d", i)))
	}
	s := newScreen(t, src)
	s.look()
	for _, height := range []int{1, 3, 5, 24, 70} {
		s.send(tea.WindowSizeMsg{Width: 100, Height: height})
		for _, at := range []int{0, 1, 7, 25, 48, 49} {
			s.m.selected = at
			if lines := len(s.lines()); lines > height {
				t.Fatalf("%d lines of %d", lines, height)
			}
			if height >= 5 {
				s.line(fmt.Sprintf("> g%02d", at))
			}
		}
	}
	s.press("down", "down")
	s.line("> g49")
}

// Answers of gateways are shown as text, and never control the terminal.
func TestTopIsNotSteeredByAnswers(t *testing.T) {
	t.Parallel()
	evil := row("one", func(v *dispatch.Glance) {
		v.Hold.Probing, v.Hold.Reason = true, "evil \x1b[2J\x1b]0;x\x07\r\n\u009btext"
	})
	s := newScreen(t, &recorder{rows: []topRow{evil}})
	s.look()
	content := s.m.View().Content
	if strings.Contains(content, "\x1b[2J") || strings.ContainsAny(content, "\x07\r\u009b") || !strings.Contains(s.line("evil"), "text") {
		t.Errorf("%q", content)
	}
}

// Amounts are never cut, however narrow the terminal is. A currency without room beside the others has its own line.
func TestTopCutsNoAmount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.manyCurrencies()
	s := newScreen(t, r.source())
	s.look()
	s.press("enter")
	for _, width := range []int{250, 100, 60, 40, 30} {
		s.send(tea.WindowSizeMsg{Width: width, Height: 30})
		s.wants(strings.Split(manyInUnits, ", ")...)
		s.m.height = 10
		if width <= 60 {
			s.wants("more than")
		}
		for _, line := range s.lines() {
			if lipgloss.Width(line) > width {
				t.Errorf("%d cells wide, on a terminal of %d: %q", lipgloss.Width(line), width, line)
			}
		}
	}
}

// On a narrow terminal, top names the columns that it leaves out, and has the whole reason why the selected gateway is not called.
func TestTopSaysWhatItHasNoRoomFor(t *testing.T) {
	t.Parallel()
	r := row("the-acquirer-for-cards-of-the-north-europe-1", func(v *dispatch.Glance) {
		v.Queued = 1_000_000
		v.Hold.Circuit, v.Hold.HeldUntil = true, v.Now.Add(59*time.Minute)
		v.Hold.Reason = "circuit open: connecting to pay.acquirer.example:443 failed: connection refused, 5 calls in a row"
	})
	s := newScreen(t, &recorder{rows: []topRow{r, row("two")}})
	s.look()
	s.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	s.wants("no room for: limits", "the-acquirer-for-cards-…", "1,000,000")
	whole := strings.Join(s.lines(), "")
	for _, want := range []string{r.Gateway + ": circuit open for 59m: connecting to", "connection refused, 5 calls in a row"} {
		if !strings.Contains(unspaced(whole), unspaced(want)) {
			t.Errorf("top lacks %q:\n%s", want, strings.Join(s.lines(), "\n"))
		}
	}
	s.press("down")
	if strings.Contains(strings.Join(s.lines(), ""), "5 calls in a row") {
		t.Error("the other gateway is selected")
	}
	s.send(tea.WindowSizeMsg{Width: 300, Height: 24})
	if text := strings.Join(s.lines(), "\n"); strings.Contains(text, "no room for") || !strings.Contains(text, r.Gateway) {
		t.Errorf("there is room for all:\n%s", text)
	}
}
