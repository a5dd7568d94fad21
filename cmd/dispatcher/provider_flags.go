package main

import (
	"fmt"

	"spillway/internal/provider"
)

// limitFlag is a repeatable --limit: the first one replaces the default.
type limitFlag struct {
	limits *[]provider.Limit
	given  bool
}

// String shows the limits so far.
func (l *limitFlag) String() string {
	if l.limits == nil {
		return ""
	}
	return limitsText(*l.limits)
}

// Set adds one limit, or removes all.
func (l *limitFlag) Set(text string) error {
	if text == "none" {
		*l.limits, l.given = nil, true
		return nil
	}
	limit, err := provider.ParseLimit(text)
	if err != nil {
		return err
	}
	if !l.given {
		*l.limits = nil
	}
	*l.limits, l.given = append(*l.limits, limit), true
	return nil
}

// Type names the value in the help.
func (*limitFlag) Type() string { return "limit" }

// limitByFlag is a repeatable --limit-by: one more limit.
type limitByFlag struct{ limits *[]provider.Limit }

// String shows nothing: there is no default.
func (l limitByFlag) String() string { return "" }

// Set adds one limit.
func (l limitByFlag) Set(text string) error {
	limit, err := provider.ParseLimitBy(text)
	*l.limits = append(*l.limits, limit)
	return err
}

// Type names the value in the help.
func (limitByFlag) Type() string { return "limit" }

// shareFlag is a share of calls, like 10% or 0.1.
type shareFlag float64

// String shows the share.
func (s *shareFlag) String() string { return fmt.Sprintf("%g%%", 100*float64(*s)) }

// Set reads the share.
func (s *shareFlag) Set(text string) error {
	share, err := provider.ParseShare(text)
	*s = shareFlag(share)
	return err
}

// Type names the value in the help.
func (*shareFlag) Type() string { return "share" }

// incidentFlag is the incident that the provider starts with.
type incidentFlag provider.Incident

// String shows the incident.
func (i *incidentFlag) String() string { return provider.Incident(*i).String() }

// Set reads the incident.
func (i *incidentFlag) Set(text string) error {
	incident, err := provider.ParseIncident(text)
	*i = incidentFlag(incident)
	return err
}

// Type names the value in the help.
func (*incidentFlag) Type() string { return "answer" }
