package desk

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Known is a gateway that is configured or known to Redis: a line of "gateway list".
type Known struct {
	Unlisted
	InFile bool `json:"in_file"`
}

// Known returns all configured gateways and all that ever had jobs, sorted by name.
func (d *Desk) Known(ctx context.Context) ([]Known, error) {
	names, err := redisdb.Registered(ctx, d.redis)
	if err != nil {
		return nil, err
	}
	if d.only {
		names = nil
	}
	names = slices.DeleteFunc(append(names, d.listed...), func(name string) bool { return job.CheckGateway(name) != nil })
	slices.Sort(names)
	names = slices.Compact(names)
	looked, err := lookAt(ctx, d.redis, names)
	if err != nil {
		return nil, err
	}
	var all []Known
	for _, name := range names {
		i := slices.IndexFunc(looked, func(u Unlisted) bool { return u.Gateway == name })
		k := Known{InFile: slices.Contains(d.listed, name), Unlisted: Unlisted{Gateway: name, Parked: map[string]int64{}}}
		if i >= 0 {
			k.Unlisted = looked[i]
		}
		if i >= 0 || k.InFile {
			all = append(all, k)
		}
	}
	return all, nil
}

// Departure is a gateway, no longer configured, to be renamed or forgotten.
type Departure struct {
	Gateway string `json:"gateway"`
	To      string `json:"to,omitempty"`
	job.Totals
	Unsummed int64 `json:"without_sum"`
	// Charged is how many of the jobs may have been charged. They prevent forgetting the gateway.
	Charged int64 `json:"may_have_charged"`
	// Otherwise is how many of those were sent with another URL, method, encoding or key prefix than the new
	// name's: they will be parked, not called.
	Otherwise int64 `json:"sent_otherwise,omitempty"`
	// Over is how many jobs were done under this name. Their ids, as long as they are known, and totals go
	// with it.
	Over int64 `json:"jobs_done"`
	Done bool  `json:"done"`

	seen   Unlisted
	moving dispatch.Moving
}

// What returns "rename up to stripe-eu" or "forget up".
func (d *Departure) What() string {
	if d.To == "" {
		return "forget " + d.Gateway
	}
	return "rename " + d.Gateway + " to " + d.To
}

// Text returns that with the jobs and their money. If it was begun before, what is left does not tell how many jobs there were.
func (d *Departure) Text() string {
	what, _, _ := strings.Cut(d.seen.Text(), " of ")
	switch {
	case d.seen.Damaged != "":
		what = "what can be read of its jobs"
	case d.seen.Moving != "":
		what = "the rest of what was begun before"
	case d.Over > 0:
		what += fmt.Sprintf(", and what is known of %d done ones", d.Over)
	}
	return d.What() + ": " + what
}

// Depart examines a gateway to be renamed, or to be forgotten if to has no name. An error says why that is not
// possible.
func (d *Desk) Depart(ctx context.Context, old string, to config.Gateway) (*Departure, error) {
	if slices.Contains(d.listed, old) {
		return nil, usage("take it out of the file first, and send SIGHUP to the dispatchers that serve it, or stop them", "the file has gateway %q", old)
	}
	looked, err := lookAt(ctx, d.redis, []string{old})
	if err != nil {
		return nil, err
	}
	if len(looked) == 0 {
		return nil, &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("no gateway %q is known: it never had a job here, or it was renamed or forgotten", old), Hint: "see: dispatcher gateway list"}
	}
	m := dispatch.Moving{Redis: d.redis, Old: old, New: to}
	if err := m.Check(); err != nil {
		return nil, err
	}
	called, err := m.MayBeCharged(ctx)
	u := looked[0]
	return &Departure{Gateway: old, To: to.Name, Totals: u.Totals, Unsummed: u.Unsummed, Charged: called.Waiting + called.Parked, Otherwise: called.Otherwise, Over: u.Done, seen: u, moving: m}, err
}

// HeldBack returns why it must not be done, or nil.
func (d *Departure) HeldBack() error {
	if d.To != "" || d.Charged == 0 {
		return nil
	}
	return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("%s of %s may have been charged, and that would be lost", job.JobsText(d.Charged), d.Gateway),
		Hint: fmt.Sprintf("put %s back into the file, then: dispatcher dlq resolve -g %[1]s --done|--not-done; those that wait for another call: dispatcher park ID first", d.Gateway)}
}

// Do does it. If it is killed, it can be repeated to continue. did is called with the number of keys that each
// step has changed.
func (d *Departure) Do(ctx context.Context, by By, did func(keys int64)) error {
	m := d.moving
	m.Did = did
	m.Act = by.act(deadletter.Act{What: "gateway " + d.What(), Deed: deadletter.Deed{Totals: d.Totals}})
	do := m.Forget
	if d.To != "" {
		do = m.Rename
	}
	err := do(ctx)
	d.Done = err == nil
	return err
}

// Forgotten returns the entries of the forgotten gateways, oldest first.
func (d *Desk) Forgotten(ctx context.Context) ([]dispatch.Forgotten, error) {
	if d.only {
		return nil, nil
	}
	all, err := dispatch.AllForgotten(ctx, d.redis)
	slices.SortFunc(all, func(a, b dispatch.Forgotten) int { return a.At.Compare(b.At) })
	return all, err
}

// Remark says what is unusual about the gateway; empty if nothing is.
func (k Known) Remark() string {
	switch {
	case k.Damaged != "":
		return "can't be looked at: " + k.Damaged
	case k.Moving != "":
		return k.Moving + " was begun and is not over"
	}
	return ""
}
