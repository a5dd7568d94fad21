package desk

import (
	"encoding/json"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// DrawnStatus is what is needed to draw a status beyond its JSON for programs, for a desk in another process.
type DrawnStatus struct {
	Now     time.Time                 `json:"now"`
	Since   *time.Time                `json:"since"`
	Stopped string                    `json:"stopped,omitempty"`
	Hold    DrawnHold                 `json:"hold"`
	Money   map[job.Reason]job.Totals `json:"money"` // of parked jobs, by reason
}

// DrawnHold is what holds a gateway's calls back.
type DrawnHold struct {
	Until    *time.Time `json:"until"`
	Reason   string     `json:"reason,omitempty"`
	Probing  bool       `json:"probing,omitempty"`
	Circuit  bool       `json:"circuit,omitempty"`
	Endless  bool       `json:"endless,omitempty"`
	Denied   bool       `json:"denied,omitempty"`
	Paused   bool       `json:"paused,omitempty"`
	PauseWhy string     `json:"pause_why,omitempty"`
	Barred   bool       `json:"barred,omitempty"`
}

// Show sets Drawn.
func (s *Status) Show() {
	v := s.Glance
	s.Drawn = &DrawnStatus{Now: v.Now, Since: when(v.Since), Stopped: v.Stopped, Money: s.Money, Hold: DrawnHold{when(v.Hold.HeldUntil), v.Hold.Reason, v.Hold.Probing,
		v.Hold.Circuit, v.Hold.Endless, v.Hold.Denied, v.Hold.Paused, v.Hold.PauseWhy, v.Hold.Barred}}
}

// UnmarshalJSON implements json.Unmarshaler. It restores what Show has set elsewhere.
func (s *Status) UnmarshalJSON(text []byte) error {
	type plain Status
	if err := json.Unmarshal(text, (*plain)(s)); err != nil || s.Drawn == nil {
		return err
	}
	d := s.Drawn
	v := dispatch.Glance{Stopped: d.Stopped, Since: moment(d.Since)}
	v.Now, v.Parked = d.Now, make(map[job.Reason]int64, len(s.Parked))
	for r, n := range s.Parked {
		v.Parked[job.Reason(r)] = n
	}
	for _, text := range s.Limits {
		l, err := job.ParseLimit(text)
		if err != nil {
			return err
		}
		v.Limits = append(v.Limits, l)
	}
	h := &v.Hold
	h.HeldUntil, h.Reason, h.Probing, h.Circuit, h.Endless = moment(d.Hold.Until), d.Hold.Reason, d.Hold.Probing, d.Hold.Circuit, d.Hold.Endless
	h.Denied, h.Paused, h.PauseWhy, h.Barred = d.Hold.Denied, d.Hold.Paused, d.Hold.PauseWhy, d.Hold.Barred
	s.Glance, s.Money, s.Drawn = v, d.Money, nil
	return nil
}

// UnmarshalJSON implements json.Unmarshaler, because the embedded Status has its own.
func (w *Watched) UnmarshalJSON(text []byte) error {
	var calls struct {
		Calls []int64 `json:"calls"`
	}
	if err := json.Unmarshal(text, &calls); err != nil {
		return err
	}
	w.Calls = calls.Calls
	return w.Status.UnmarshalJSON(text)
}

// moment returns the time, or zero if t is nil.
func moment(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
