package main

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"spillway/internal/redisdb"
)

// topEvery is the time between two looks.
const topEvery = time.Second

// topAct is what a key does to a gateway.
type topAct string

const (
	topPause  topAct = "pause"
	topResume topAct = "resume"
)

// topModel is what the screen shows. It changes by messages alone: keys, looks that have come back, and the clock.
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
	detail        bool // the parked jobs of the selected gateway instead of all gateways

	trouble error     // of the last look; nil if it was answered
	since   time.Time // the first look of those that were not
	fatal   error     // the first look failed in a way that does not pass

	ask     topAct // the question that is open, if any
	asked   string // the gateway it is about
	acting  bool   // it was answered with yes, and that is under way
	leaving bool   // the screen closes when it is done
	said    string // what came of the last one
}

// topGateways is what the screen looks at.
type topGateways interface {
	// look returns the gateways, and of the one whose page is shown, if any, the lanes too.
	look(ctx context.Context, page string) ([]topRow, error)
	act(ctx context.Context, what topAct, gateway string) error
}

// topLooked is a look that came back.
type topLooked struct {
	rows []topRow
	err  error
	at   time.Time
}

// topAgain says that it is time for the next look.
type topAgain time.Time

// topActed is an action that came back.
type topActed struct {
	what    topAct
	gateway string
	err     error
}

// Init begins with a look.
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

// Update takes one message in.
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
	if len(m.rows) == 0 || m.acting {
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
		m.ask, m.asked = topPause, m.rows[m.selected].Gateway
	case "r":
		m.ask, m.asked = topResume, m.rows[m.selected].Gateway
	}
	return m, nil
}

// leave ends the screen; what a person has just said yes to is done first, unless the key comes twice.
func (m topModel) leave() (tea.Model, tea.Cmd) {
	if m.acting && !m.leaving {
		m.leaving, m.said = true, "one moment …"
		return m, nil
	}
	return m, tea.Quit
}

// answered takes the answer to a question: only y is a yes.
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
