package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
