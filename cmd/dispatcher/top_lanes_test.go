package main

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"spillway/internal/desk"
)

// If a gateway has lanes, top has a column for them. The page of the gateway has the lanes with the most jobs, and why each of them waits.
func TestTopShowsLanes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.laned()
	s := newScreen(t, r.source())
	s.look()
	header, row := s.line("GATEWAY"), s.line(r.one)
	end := strings.Index(header, "LANES") + len("LANES")
	if got := strings.TrimSpace(string([]rune(row)[end-len("LANES") : end])); got != "2" {
		t.Errorf("LANES is %q in\n%s\n%s", got, header, row)
	}
	s.press("enter")
	s.look()
	s.wants("in the queue: lanes with jobs: 2, throttled: 2 (1/h each); routes: (none) ", "classes: urgent 1, normal 31", "KEPT BACK")
	if line := s.line("hog "); !strings.Contains(line, " 31 ") || !strings.Contains(line, "throttled for ") {
		t.Error(line)
	}
	s.press("down")
	s.look()
	if all := strings.Join(s.lines(), "\n"); strings.Contains(all, "in the queue") {
		t.Errorf("a gateway without lanes has some:\n%s", all)
	}
	s.press("esc")
	for _, row := range s.m.rows {
		if row.largest != nil {
			t.Error("lanes are looked at that nobody sees")
		}
	}
}

func TestTopHasNoColumnOfLanesWithoutLanes(t *testing.T) {
	t.Parallel()
	s := newScreen(t, &recorder{rows: []topRow{row("one")}})
	s.look()
	if all := strings.Join(s.lines(), "\n"); strings.Contains(all, "LANES") || strings.Contains(all, "no room for") {
		t.Error(all)
	}
}

// Names of lanes come from payloads, and reasons from gateways. They are not wider than the screen, do not control it, and hide no number.
func TestTopCutsLanes(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour)
	one := row("stripe")
	one.Lanes = &desk.LanesStatus{Busy: 3000, Throttled: 2, Queued: 5000}
	one.largest = &desk.Lanes{Looked: 5000, Lanes: []desk.LaneRow{{Lane: strings.Repeat("acct-", 40) + "\x1b[2J", Queued: 4000, Paused: true},
		{Lane: "m2", Queued: 900, Until: &until, HeldUntil: &until, HoldReason: "HTTP 429 \x1b[31m" + strings.Repeat("slow down ", 30)}}}
	s := newScreen(t, &recorder{rows: []topRow{one}})
	s.look()
	s.press("enter")
	for width := 200; width > 20; width -= 7 {
		s.send(tea.WindowSizeMsg{Width: width, Height: 40})
		for _, l := range s.lines() {
			if lipgloss.Width(l) > width || strings.Contains(l, "\x1b") {
				t.Fatalf("width %d: %q has %d", width, l, lipgloss.Width(l))
			}
		}
	}
	s.send(tea.WindowSizeMsg{Width: 200, Height: 40})
	s.wants("4,000", "paused", "held until ", "HTTP 429", "5,000 lanes were looked at, and there are more: dispatcher lane list -g stripe")
}
