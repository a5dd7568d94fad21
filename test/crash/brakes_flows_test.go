package crash

import (
	"context"
	"strconv"
	"strings"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
)

// The brakes of the flows. Each job takes EUR 1: wide has room for all of them, and tight for three.
const (
	inEuros = "amount: {field: amount, currency: currency}\n"
	wide    = inEuros + "brakes: [{limit: EUR 1000/10s}, {limit: EUR 2000/1m}, {single: EUR 20}, {unknown_currency: refuse}]\n"
	tight   = inEuros + "brakes: [{limit: EUR 3/1m}, {limit: EUR 2000/24h}]\n"
	hasRoom = 3
)

// brakeFlows returns the flows of a gateway with brakes of money.
func brakeFlows() []flow {
	return []flow{
		{
			name: "dispatch, with brakes", settings: leak + narrow + wide, act: dispatchAll,
			jobs: []string{"ok-1", "fails-1", "refuses-1", "stale-1", "later-1", "dear-1", "cut-1"},
		},
		{
			name: "dispatch, with brakes, without keys", request: keyless, settings: leak + roomy + wide, act: dispatchAll,
			jobs: []string{"cut-1", "ok-1", "fails-1", "refuses-1", "ok-2"},
		},
		{
			name: "recover, with brakes", settings: leak + roomy + wide, prepare: victim, bereft: true, act: dispatchAll,
			jobs: []string{"hangs-1", "hangs-2", "ok-1", "ok-2"},
		},
		{
			name: "shut down, with brakes", settings: strings.Replace(leak, "}", ", max_in_flight: 3}", 1) + roomy + wide, act: shutDown, late: true,
			jobs: []string{"slow-1", "slow-2", "slow-3", "slow-4", "slow-5", "fails-1"},
		},
		{
			name: "dispatch, where a brake has no room", settings: leak + roomy + tight, act: dispatchAll, again: liftBrakes,
			jobs: []string{"ok-1", "fails-1", "ok-2", "ok-3", "ok-4"},
		},
	}
}

// liftBrakes lifts the brakes, so that jobs without room can be called.
func liftBrakes(ctx context.Context, p *process) error {
	return insist(func() error {
		return dispatch.LiftBrakes(ctx, p.db.Client, p.gateway(), ledger.Lift{For: time.Hour, Who: "test", Why: "crash"})
	})
}

// money checks that the brakes count exactly the money of the attempts: of those that ended with a call or with the death of their worker, and of those
// that are open.
func (r *run) money(when string, b books) {
	if !strings.Contains(r.flow.settings, "brakes:") {
		return
	}
	const each = 100
	attempts := int64(0)
	for id, rec := range b.records {
		attempts += int64(rec.Attempts)
		if rec.State == job.InFlight && r.c.HExists(r.ctx, r.keys.Job(id), record.Short("counted")).Val() {
			attempts++
		}
	}
	fields, err := r.c.HGetAll(r.ctx, r.keys.Brakes()).Result()
	r.must(err)
	const day = "EUR:86400000000"
	parts := int64(0)
	for field, value := range fields {
		if strings.HasPrefix(field, "b:"+day+":") {
			n, _ := strconv.ParseInt(value, 10, 64)
			parts += n
		}
	}
	if sum, _ := strconv.ParseInt(fields["s:"+day], 10, 64); sum != attempts*each || parts != sum {
		r.fault("%s: %d attempts take %d, and brakes count %d, in parts %d: %v", when, attempts, attempts*each, sum, parts, fields)
	}
	if calls := len(r.till.seen()); strings.Contains(r.flow.settings, tight) && fields["lifted"] == "" && calls > hasRoom {
		r.fault("%s: %d calls, and the brake has room for %d", when, calls, hasRoom)
	}
}
