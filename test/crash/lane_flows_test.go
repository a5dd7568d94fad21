package crash

import (
	"context"
	"errors"
	"strings"

	"spillway/internal/admission"
	"spillway/internal/audit"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// laneFlows returns the flows of lanes alone.
func laneFlows() []flow {
	return []flow{
		{
			name: "dispatch, some cost more than there is room", settings: leak + narrow + inLanes, prepare: func(r *run) { r.enqueueIn(admission.Park); r.parked(3) }, act: dispatchNarrower,
			jobs: []string{"ok-1", "dear-1", "ok-2", "dear-2", "ok-3", "dear-3", "ok-4"},
		},
		{
			name: "put lanes right", settings: leak + roomy + inLanes, prepare: lostLanes, astray: true, act: repairLanes, again: repairLanes,
			jobs: []string{"ok-1", "fails-1", "ok-2", "refuses-1", "dear-1", "ok-3", "fails-2"},
		},
	}
}

// parked checks that at least that many jobs wait for room.
func (r *run) parked(least int64) {
	if n := r.c.ZCard(r.ctx, r.keys.Parked(string(job.Rejected))).Val(); n < least {
		r.fault("%d jobs are parked", n)
	}
}

// dispatchNarrower serves with a configuration in which some waiting jobs cost more than there can ever be room for. The next process has the other configuration again.
func dispatchNarrower(ctx context.Context, p *process) error {
	p.cfg.Gateways[0].Admission.Burst = 1
	return p.dispatch(ctx)
}

// lostLanes leaves jobs in lanes that no process can find: one lane is in no set, one has lost its record, and the list of the sets of lanes is deleted.
func lostLanes(r *run) {
	r.enqueue()
	p := r.next()
	defer func() { _ = p.db.Close() }()
	pause := func(paused bool) {
		for _, lane := range []string{"ok", "fails", "refuses", "dear"} {
			r.must(dispatch.SetLane(r.ctx, p.db.Client, p.gateway(), lane, dispatch.LaneChange{Paused: &paused}))
		}
	}
	pause(true)
	d, err := p.serve(r.ctx)
	r.must(err)
	r.await("the jobs to stand in lanes", func() bool {
		n, _ := r.c.HGet(r.ctx, r.keys.Lanes(), "tasks").Int()
		return n == len(r.flow.jobs)
	})
	r.must(stop(d))
	pause(false)
	r.must(errors.Join(r.c.ZRem(r.ctx, r.keys.Ready(":"), "ok").Err(), r.c.ZRem(r.ctx, r.keys.Throttled(), "ok").Err(), r.c.Del(r.ctx, r.keys.Lane("fails"), r.keys.Lanes()).Err()))
	a, err := audit.New(r.c, r.Gateway, dispatch.Books(r.c, r.gateway())).Audit(r.ctx, audit.Params{Most: 100, Patience: -1})
	r.must(err)
	var said []string
	for _, f := range a.Faults.List {
		said = append(said, f.Describe())
	}
	for _, want := range []string{"ready", "its lane stands neither"} {
		if text := strings.Join(said, "\n"); !strings.Contains(text, want) {
			r.fault("the audit does not say %q, but\n%s", want, text)
		}
	}
}

// repairLanes does what audit --repair does.
func repairLanes(ctx context.Context, p *process) error {
	return insist(func() error {
		_, err := audit.New(p.db.Client, p.Gateway, dispatch.Books(p.db.Client, p.gateway())).Audit(ctx, audit.Params{Most: 100, Patience: -1, Repair: true})
		return err
	})
}
