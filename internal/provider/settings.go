package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// settings is Config as GET and PATCH /settings write it. A field that is left out stays as it is.
type settings struct {
	Limit        *limitList `json:"limit"`         // "100/s", or a list
	Service      *duration  `json:"service"`       // "20ms"
	Decline      *share     `json:"decline"`       // 0.1 or "10%"
	DeclineEvery *int       `json:"decline_every"` // each n-th job id
	FailEvery    *int       `json:"fail_every"`    // each n-th job id, once
	Fail         *share     `json:"fail"`
	Hang         *share     `json:"hang"`
	Down         *bool      `json:"down"`
	RetryAfter   *duration  `json:"retry_after"`
	NoHint       *bool      `json:"no_hint"`
	CountRefused *bool      `json:"count_refused"`
	LookupLag    *duration  `json:"lookup_lag"`
	LookupFail   *share     `json:"lookup_fail"`
	LookupHang   *share     `json:"lookup_hang"`
	Keys         *bool      `json:"keys"`
	Save500      *bool      `json:"save_500"`
	Charge500    *bool      `json:"charge_500"`
	Marks        *bool      `json:"marks"`
	Fates        *fateList  `json:"fates"` // they replace those before
	// Incident is null for none.
	Incident incidentField `json:"incident"`
}

func (p *Provider) serveSettings(w http.ResponseWriter, r *http.Request) {
	if !allowed(w, r, http.MethodGet, http.MethodPut, http.MethodPatch) {
		return
	}
	if r.Method != http.MethodGet {
		var s settings
		if err := strictDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&s); err != nil {
			http.Error(w, "settings: "+err.Error(), http.StatusBadRequest)
			return
		}
		p.change(s.apply)
	}
	writeJSON(w, asSettings(p.Config()))
}

// strictDecoder takes unknown fields for errors.
func strictDecoder(from io.Reader) *json.Decoder {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	return d
}

func strictly(b []byte, v any) error { return strictDecoder(bytes.NewReader(b)).Decode(v) }

// change changes the behaviour in one step, so that two changes of different fields at once both hold.
func (p *Provider) change(apply func(*Config)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	apply(&p.cfg)
}

func (s settings) apply(c *Config) {
	set(&c.Limits, (*[]Limit)(s.Limit))
	set(&c.Service, (*time.Duration)(s.Service))
	set(&c.Decline, (*float64)(s.Decline))
	set(&c.DeclineEvery, s.DeclineEvery)
	set(&c.FailEvery, s.FailEvery)
	set(&c.Fail, (*float64)(s.Fail))
	set(&c.Hang, (*float64)(s.Hang))
	set(&c.Down, s.Down)
	set(&c.RetryAfter, (*time.Duration)(s.RetryAfter))
	set(&c.NoHint, s.NoHint)
	set(&c.CountRefused, s.CountRefused)
	set(&c.LookupLag, (*time.Duration)(s.LookupLag))
	set(&c.LookupFail, (*float64)(s.LookupFail))
	set(&c.LookupHang, (*float64)(s.LookupHang))
	if s.Keys != nil {
		c.NoKeys = !*s.Keys
	}
	set(&c.Save500, s.Save500)
	set(&c.Charge500, s.Charge500)
	if s.Marks != nil {
		c.NoMarks = !*s.Marks
	}
	set(&c.Fates, (*[]Fate)(s.Fates))
	if s.Incident.given {
		c.Incident = s.Incident.Incident
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func asSettings(c Config) settings {
	keys, marks := !c.NoKeys, !c.NoMarks
	return settings{
		Limit: (*limitList)(&c.Limits), Service: (*duration)(&c.Service), Decline: (*share)(&c.Decline),
		DeclineEvery: &c.DeclineEvery, FailEvery: &c.FailEvery, Fail: (*share)(&c.Fail), Hang: (*share)(&c.Hang), Down: &c.Down,
		RetryAfter: (*duration)(&c.RetryAfter), NoHint: &c.NoHint, CountRefused: &c.CountRefused, Keys: &keys,
		LookupLag: (*duration)(&c.LookupLag), LookupFail: (*share)(&c.LookupFail), LookupHang: (*share)(&c.LookupHang),
		Save500: &c.Save500, Charge500: &c.Charge500, Marks: &marks, Fates: (*fateList)(&c.Fates), Incident: incidentField{Incident: c.Incident},
	}
}

type limitList []Limit

// UnmarshalJSON reads one limit or a list of them.
func (l *limitList) UnmarshalJSON(b []byte) error {
	var texts []string
	if err := json.Unmarshal(b, &texts); err != nil {
		texts = []string{""}
		if err := json.Unmarshal(b, &texts[0]); err != nil {
			return errors.New(`limit: write it like "100/s" or ["100/s", "5000/m"]`)
		}
	}
	parsed := limitList{}
	for _, text := range texts {
		one, err := ParseLimit(text)
		if err != nil {
			return err
		}
		parsed = append(parsed, one)
	}
	*l = parsed
	return nil
}

// MarshalJSON writes a list.
func (l limitList) MarshalJSON() ([]byte, error) {
	texts := []string{}
	for _, one := range l {
		texts = append(texts, one.String())
	}
	return json.Marshal(texts)
}

type duration time.Duration

// UnmarshalJSON reads a text like "20ms".
func (d *duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return errors.New(`a time is written like "20ms"`)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil || parsed < 0 {
		return fmt.Errorf(`%q is not a time: write it like "20ms"`, text)
	}
	*d = duration(parsed)
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

type share float64

// UnmarshalJSON reads a number from 0 to 1, or a text like "10%".
func (s *share) UnmarshalJSON(b []byte) error {
	parsed, err := ParseShare(strings.Trim(string(b), `"`))
	*s = share(parsed)
	return err
}

// ParseShare reads a share: a number from 0 to 1, or 0% to 100%.
func ParseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f <= 1) {
		return 0, fmt.Errorf("%q is not a share: write it like 10%% or 0.1", text)
	}
	return f, nil
}

// ParseFate reads a fate: share=5%,status=500 or id=inv-00003,status=503,retry_after=1s or id=old-*,hang,charge=false.
func ParseFate(text string) (Fate, error) {
	var t told
	if err := t.parse(text); err != nil {
		return Fate{}, err
	}
	return t.fate()
}

// ParseIncident reads an incident: status=429,retry_after=3s,share=30%. Without a share it concerns all calls.
func ParseIncident(text string) (Incident, error) {
	var t told
	if err := t.parse(text); err != nil {
		return Incident{}, err
	}
	return t.incident()
}

// told is a fate, or an incident, as somebody writes it.
type told struct {
	ID         string   `json:"id,omitempty"`
	Share      *share   `json:"share,omitempty"`
	Status     int      `json:"status,omitempty"`
	Hang       bool     `json:"hang,omitempty"`
	RetryAfter duration `json:"retry_after,omitempty"`
	Charge     *bool    `json:"charge,omitempty"`
}

// parse reads key=value, with commas between.
func (t *told) parse(text string) error {
	for _, part := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		if err := t.put(key, value); err != nil {
			return fmt.Errorf("%q in %q: %w", part, text, err)
		}
	}
	return nil
}

func (t *told) put(key, value string) (err error) {
	switch key {
	case "id":
		t.ID = value
	case "share":
		t.Share = new(share)
		err = t.Share.UnmarshalJSON([]byte(value))
	case "status":
		t.Status, err = strconv.Atoi(value)
	case "hang":
		t.Hang, err = parseYes(value)
	case "retry_after":
		err = t.RetryAfter.UnmarshalJSON([]byte(strconv.Quote(value)))
	case "charge":
		t.Charge = new(bool)
		*t.Charge, err = parseYes(value)
	default:
		err = errors.New("write id, share, status, hang, retry_after or charge")
	}
	return err
}

// parseYes takes a word that stands alone for true.
func parseYes(value string) (bool, error) { return value == "" || value == "true", notBool(value) }

func notBool(value string) error {
	if value != "" && value != "true" && value != "false" {
		return errors.New("write true or false")
	}
	return nil
}

func (t told) fate() (Fate, error) {
	f := Fate{ID: t.ID, Status: t.Status, RetryAfter: time.Duration(t.RetryAfter), Charge: charges(t.Status)}
	if t.Charge != nil {
		f.Charge = *t.Charge
	}
	if t.Share != nil {
		f.Share = float64(*t.Share)
	}
	switch {
	case (t.ID == "") == (t.Share == nil):
		return Fate{}, errors.New("a fate is of one job or of a share of them: write id=inv-00003 or share=5%")
	case t.Hang == (t.Status != 0):
		return Fate{}, errors.New("a fate is one answer, or none: write status=500 or hang")
	case t.Status != 0 && (t.Status < 200 || t.Status > 599):
		return Fate{}, fmt.Errorf("status %d is not one of a last answer: write 200 to 599", t.Status)
	}
	return f, nil
}

func (t told) incident() (Incident, error) {
	switch {
	case t.ID != "" || t.Hang || t.Charge != nil:
		return Incident{}, errors.New("an incident has status, retry_after and share alone: jobs have fates")
	case t.Status < 400 || t.Status > 599:
		return Incident{}, fmt.Errorf("status %d is not one of an incident: write 400 to 599", t.Status)
	case t.Share != nil && *t.Share == 0:
		return Incident{}, errors.New("an incident that no call meets: leave it out, or write null")
	}
	i := Incident{Status: t.Status, RetryAfter: time.Duration(t.RetryAfter), Share: 1}
	if t.Share != nil {
		i.Share = float64(*t.Share)
	}
	return i, nil
}

type fateList []Fate

// UnmarshalJSON reads a list of fates.
func (l *fateList) UnmarshalJSON(b []byte) error {
	var list []told
	if err := strictly(b, &list); err != nil {
		return fmt.Errorf(`fates: write them like [{"share":"5%%","status":500},{"id":"inv-00003","status":403}]: %w`, err)
	}
	fates := fateList{}
	for _, t := range list {
		f, err := t.fate()
		if err != nil {
			return err
		}
		fates = append(fates, f)
	}
	*l = fates
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (l fateList) MarshalJSON() ([]byte, error) {
	list := []told{}
	for _, f := range l {
		charge := f.Charge
		t := told{ID: f.ID, Status: f.Status, Hang: f.Status == 0, RetryAfter: duration(f.RetryAfter), Charge: &charge}
		if f.ID == "" {
			t.Share = (*share)(&f.Share)
		}
		list = append(list, t)
	}
	return json.Marshal(list)
}

// incidentField is an incident that may be left out, or null for none.
type incidentField struct {
	given bool
	Incident
}

// UnmarshalJSON reads an incident, or null.
func (i *incidentField) UnmarshalJSON(b []byte) error {
	*i = incidentField{given: true}
	if string(b) == "null" {
		return nil
	}
	var t told
	err := strictly(b, &t)
	if err == nil {
		i.Incident, err = t.incident()
	}
	if err != nil {
		return fmt.Errorf(`incident: write it like {"status":429,"retry_after":"3s","share":"30%%"} or null: %w`, err)
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (i incidentField) MarshalJSON() ([]byte, error) {
	if i.Status == 0 {
		return []byte("null"), nil
	}
	of := share(i.share())
	return json.Marshal(told{Status: i.Status, RetryAfter: duration(i.RetryAfter), Share: &of})
}
