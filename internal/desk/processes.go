package desk

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

// Process is a dispatcher that is running, or was until recently.
type Process struct {
	Process string `json:"process"` // HOST.PID
	// State is serving, or silent: it has given no sign of life for a while, and did not announce that it
	// stops.
	State    ProcessState `json:"state"`
	Version  string       `json:"version"`
	Started  time.Time    `json:"started"`
	Seen     time.Time    `json:"last_seen"`
	Gateways int          `json:"gateways"` // number served
	// Chosen are the first of them, if it was told to serve only some of its configuration.
	Chosen   []string   `json:"chosen,omitempty"`
	Listen   string     `json:"listen,omitempty"` // address of its HTTP server; empty: none
	Calls    int64      `json:"calls"`            // since it started
	LastCall *time.Time `json:"last_call"`        // nil: none so far
}

// ProcessState says whether a process is running.
type ProcessState string

// The states.
const (
	ProcessServing ProcessState = "serving"
	ProcessSilent  ProcessState = "silent"
)

// Which says for a person which gateways it serves.
func (p Process) Which() string {
	if len(p.Chosen) == 0 {
		return "all of its file"
	}
	text := strings.Join(p.Chosen, ", ")
	if p.Gateways > len(p.Chosen) {
		text += ", …"
	}
	return text
}

// Processes are the dispatchers of one Redis.
type Processes struct {
	List []Process `json:"processes"` // serving ones first, then by name
}

// Versions returns the versions of those that serve, each once, sorted.
func (p Processes) Versions() (all []string) {
	for _, one := range p.List {
		if one.State == ProcessServing {
			all = append(all, one.Version)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// WhoServes returns the dispatchers on this Redis. A killed one is listed as silent for six hours; a stopped
// one is no longer listed.
func WhoServes(ctx context.Context, c redis.UniversalClient) (Processes, error) {
	found, now, err := redisdb.WhoServes(ctx, c)
	all := Processes{List: make([]Process, 0, len(found))}
	for _, f := range found {
		p := Process{Process: f.Name, State: ProcessServing, Version: f.Version, Started: f.Started, Seen: f.Seen, Gateways: f.Gateways, Chosen: f.Chosen,
			Listen: f.Listen, Calls: f.Calls, LastCall: when(f.LastCall)}
		if now.Sub(f.Seen) > redisdb.SilentAfter {
			p.State = ProcessSilent
		}
		all.List = append(all.List, p)
	}
	slices.SortFunc(all.List, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.State, b.State), strings.Compare(a.Process, b.Process))
	})
	return all, err
}
