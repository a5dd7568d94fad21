package main

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"spillway/internal/redisdb"
)

// topEvery is the time between two reads.
const topEvery = time.Second

// topAct is what a key does to a gateway.
type topAct string

const (
	topPause  topAct = "pause"
	topResume topAct = "resume"
)

// topModel is the state of the screen. It changes only by messages: keys, finished reads, and the clock.
//
//	look ──→ topLooked ──→ a second later ──→ look      (one at a time, however slow Redis is)
//	p, r ──→ the question ──y──→ act ──→ topActed
type topModel struct {
	ctx           context.Context
	src           topGateways
	width, height int
	now           time.Time
	rows          []topRow
	selected      int
	detail        bool // shows the parked jobs of the selected gateway instead of all gateways

	trouble error     // error of the last read; nil if it succeeded
	since   time.Time // time of the first of the failing reads
	fatal   error     // the first read failed with a permanent error

	ask     topAct // the open question, if any
	asked   string // its gateway
	acting  bool   // it was answered with yes, and the act is in progress
	leaving bool   // the screen closes when the act is done
	said    string // result of the last act
}

// topGateways is the source of the screen's data.
type topGateways interface {
	// look returns the gateways, with the lanes of the one whose page is shown, if any.
	look(ctx context.Context, page string) ([]topRow, error)
	act(ctx context.Context, what topAct, gateway string) error
}

// topLooked is a finished read.
type topLooked struct {
	rows []topRow
	err  error
	at   time.Time
}

// topAgain says that the next read is due.
type topAgain time.Time

// topActed is a finished act.
type topActed struct {
	what    topAct
	gateway string
	err     error
}

// Init starts the first read.
func (m topModel) Init() tea.Cmd { return m.look() }

func (m topModel) look() tea.Cmd {
	page := ""
	if m.detail && m.selected < len(m.rows) {
		page = m.rows[m.selected].Gateway
	}
	return func() tea.Msg {
		rows, err := m.src.look(m.ctx, page)
		return topLooked{rows, err, time.Now()}
	}
}

// Update handles one message.
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topLooked:
		return m.looked(msg)
	case topAgain:
		m.now = time.Time(msg)
		return m, m.look()
	case topActed:
		return m.acted(msg)
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	return m, nil
}

func (m topModel) looked(msg topLooked) (tea.Model, tea.Cmd) {
	m.now = msg.at
	switch {
	case msg.err == nil:
		m.rows, m.trouble = msg.rows, nil
	case msg.rows != nil: // the data of others is damaged
		if m.trouble == nil {
			m.since = msg.at
		}
		m.rows, m.trouble = msg.rows, msg.err
	case m.rows == nil && !away(msg.err):
		m.fatal = msg.err
		return m, tea.Quit
	default:
		if m.trouble == nil {
			m.since = msg.at
		}
		m.trouble = msg.err
	}
	return m, tea.Tick(topEvery, func(at time.Time) tea.Msg { return topAgain(at) })
}

func (m topModel) acted(msg topActed) (tea.Model, tea.Cmd) {
	m.acting = false
	m.said = msg.gateway + " " + map[topAct]string{topPause: "paused", topResume: "resumed"}[msg.what]
	if msg.err != nil {
		m.said = "could not " + string(msg.what) + " " + msg.gateway + ": " + redisdb.Coded(msg.err).Error()
	}
	if m.leaving {
		m.fatal = msg.err
		return m, tea.Quit
	}
	return m, nil
}

func (m topModel) key(key string) (tea.Model, tea.Cmd) {
	if key == "q" || key == "ctrl+c" {
		return m.leave()
	}
	if m.ask != "" {
		return m.answered(key)
	}
	if len(m.rows) == 0 {
		return m, nil
	}
	m.said = ""
	switch key {
	case "up", "k":
		m.selected = max(m.selected-1, 0)
	case "down", "j":
		m.selected = min(m.selected+1, len(m.rows)-1)
	case "enter":
		m.detail = true
	case "esc":
		m.detail = false
	case "p":
		return m.open(topPause), nil
	case "r":
		return m.open(topResume), nil
	}
	return m, nil
}

// open asks whether to do what to the selected gateway. One act runs at a time: it does not ask before the last one is done.
func (m topModel) open(what topAct) topModel {
	if m.acting {
		m.said = "the last pause or resume is still in progress"
		return m
	}
	m.ask, m.asked = what, m.rows[m.selected].Gateway
	return m
}

// leave ends the screen. A confirmed act is finished first, unless the key is pressed twice.
func (m topModel) leave() (tea.Model, tea.Cmd) {
	if m.acting && !m.leaving {
		m.leaving, m.said = true, "one moment …"
		return m, nil
	}
	return m, tea.Quit
}

// answered handles the answer to a question: only y means yes.
func (m topModel) answered(key string) (tea.Model, tea.Cmd) {
	what, gateway := m.ask, m.asked
	m.ask, m.asked, m.said = "", "", ""
	if key != "y" && key != "Y" {
		m.said = "nothing was done"
		return m, nil
	}
	m.acting = true
	return m, func() tea.Msg { return topActed{what, gateway, m.src.act(m.ctx, what, gateway)} }
}
