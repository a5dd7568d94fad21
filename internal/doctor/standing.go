package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/incarnation"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

const (
	// stuckFor is how long every call of a job must have met 429 before that is reported.
	stuckFor = time.Hour
	// sampled is how many jobs of each kind are read.
	sampled = 200
)

// standing checks a gateway's stored state.
func (x *examination) standing(ctx context.Context, c redis.UniversalClient, g config.Gateway) error {
	sign, err := incarnation.Look(ctx, c, g.Name)
	if err != nil {
		return err
	}
	if redisdb.Newer(sign.Format) {
		e, _ := errors.AsType[*job.Error](redisdb.NewerError(g.Name, sign.Format))
		x.add(fail("format", g.Name, e.Hint, "%s", e.Message))
		return nil // the rest can't be interpreted here
	}
	doubt := sign.Doubt
	if doubt != "" {
		x.add(fail("snapshot", g.Name, `look up what was done since, enqueue the files of that time again, then start one dispatcher with "run --after-restore"`,
			"nothing is called: %s", doubt))
	}
	v, err := dispatch.Look(ctx, c, g)
	if err != nil {
		return err
	}
	before := len(x.Checks)
	x.held(g, v, doubt != "")
	x.parked(g, v)
	x.pending(g, v)
	x.live(g, v)
	if err := x.outcomes(ctx, c, g, v); err != nil {
		return err
	}
	if doubt == "" { // dispatchers give no sign of life while the data is in doubt
		if err := x.served(ctx, c, g, v); err != nil {
			return err
		}
	}
	if err := x.jobs(ctx, c, g, v.Now); err != nil {
		return err
	}
	if err := x.trail(ctx, c, g); err != nil {
		return err
	}
	if len(x.Checks) == before && doubt == "" {
		x.add(ok("standing", g.Name, "not held, and nothing waits for a person"))
	}
	if v.Pending > 0 && !v.Asking.Oldest.IsZero() {
		x.add(ok("pending", g.Name, "it is asked what became of %s, for the longest since %s, next at %s", job.JobsText(v.Pending), job.Moment(v.Asking.Oldest), job.Moment(v.Asking.Next)))
	}
	return nil
}

// trail verifies the audit trail by its chain.
func (x *examination) trail(ctx context.Context, c redis.UniversalClient, g config.Gateway) error {
	v, err := desk.New(c, []config.Gateway{g}).Gateways[0].VerifyTrail(ctx)
	if err == nil && !v.OK {
		x.add(fail("trail", g.Name, "dispatcher trail verify -g "+g.Name+" names all; keep a copy of Redis's files, and compare with the logs of dispatchers and with exports",
			"who did what is not as it was written: %s", v.Findings[0]))
	}
	return err
}

func (x *examination) held(g config.Gateway, v dispatch.Glance, doubted bool) {
	h := v.Hold
	switch {
	case doubted:
	case h.Stale:
		x.add(fail("limits_lost", g.Name, fmt.Sprintf("start a dispatcher of this version, which mends it; or set them again: dispatcher limit set -g %s …, or limit reset -g %[1]s", g.Name),
			"nothing is called: %s", h.PauseWhy))
	case h.Barred && v.Outcomes != nil && !v.Outcomes.Held.IsZero():
		x.add(fail("outcomes_held", g.Name, "start the reader; or raise outcomes.max_behind or take the reader out of the file, and send SIGHUP to the dispatchers", "it is not called: %s", h.PauseWhy))
	case h.Paused:
		x.add(warn("paused", g.Name, "when the reason has gone: dispatcher resume -g "+g.Name, "it is not called: paused, %s", h.PauseWhy))
	case h.NoToken:
		x.add(fail("access_token", g.Name, "check request.oauth2, and ask those who run token_url; after a change, dispatcher run takes the file over on SIGHUP", "it is not called: %s", h.Reason))
	case h.Circuit:
		x.add(warn("circuit", g.Name, "it closes by itself when a call succeeds; ask those who run the gateway", "%s", h.Reason))
	case h.Denied:
		x.add(warn("held", g.Name, "put the right credential into its file and send SIGHUP, or into the environment and restart the dispatchers",
			"it is not called: %s", dispatch.Cause(h)))
	case h.HeldUntil.After(v.Now):
		x.add(warn("held", g.Name, "nothing, unless it comes back",
			"it is not called until %s: %s", job.Moment(h.HeldUntil), h.Reason))
	}
}

func (x *examination) parked(g config.Gateway, v dispatch.Glance) {
	if n := v.Parked[job.UnknownOutcome]; n > 0 {
		x.add(warn("unknown_outcome", g.Name, fmt.Sprintf("look each up at the gateway, then: dispatcher dlq resolve -g %s --reason unknown_outcome --done|--not-done", g.Name),
			"%d jobs may or may not have been charged, and wait for a person", n))
	}
	const relief = "dispatcher dlq stats -g %s; replay, resolve or discard some, or raise %s if Redis has the memory"
	if most := v.ParkedNear.Jobs; most > 0 {
		x.add(warn("parked_most", g.Name, fmt.Sprintf(relief, g.Name, "parked.most"),
			"%d jobs are parked of %d that may be: beyond, newcomers that find no room are turned away", v.AllParked(), most))
	}
	if most := v.ParkedNear.Bytes; most > 0 {
		x.add(warn("parked_bytes", g.Name, fmt.Sprintf(relief, g.Name, "parked.bytes"),
			"the payloads of the parked jobs come to %s of %s that there may be: beyond, newcomers that find no room are turned away", size(v.ParkedBytes), size(most)))
	}
	if n := v.Parked[job.Rejected]; n > 0 && g.Replay == config.ReplayManual {
		x.add(warn("rejected", g.Name, fmt.Sprintf("dispatcher dlq replay -g %s --reason rejected, or replay: auto in the file", g.Name),
			"%d jobs found no room, and with replay: manual none of them goes in by itself", n))
	}
}

// pending checks what keeps pending jobs from being settled.
func (x *examination) pending(g config.Gateway, v dispatch.Glance) {
	if v.Pending > 0 && !g.Asked() {
		x.add(warn("no_lookup", g.Name, "put lookup back into the file; or look them up when a dispatcher has parked them as unknown_outcome, which it does within a minute",
			"no look-ups are made any more for %s: the file has no lookup", job.JobsText(v.Pending)))
	}
	if a := v.Asking; !a.Failing.IsZero() && v.Now.Sub(a.Failing) >= desk.FailingLong {
		x.add(warn("lookups_fail", g.Name, "check lookup of the gateway in the file, and its credentials: dispatcher job "+dispatch.ShellWord(a.FailingJob),
			"look-ups of pending jobs fail since %s, such as that of %s: %s", job.Moment(a.Failing), a.FailingJob, a.FailingWhy))
	}
}

// live warns if the configured limits are not in force.
func (x *examination) live(g config.Gateway, v dispatch.Glance) {
	now, file := fmt.Sprint(v.Limits), fmt.Sprint(g.Leak.Limits)
	if now == file {
		return
	}
	x.add(warn("limits", g.Name, fmt.Sprintf("if they are to stay, write them into the file; else: dispatcher limit reset -g %s", g.Name),
		"the limits %s were set live and win over the file's %s", strings.Trim(now, "[]"), strings.Trim(file, "[]")))
	if in, leak := rate(v.Admission), rate(v.Limits); in > leak*1.000001 && in <= rate(g.Leak.Limits)*1.000001 {
		x.add(warn("admission", g.Name, "lower admission.limits too, or set the limit back",
			"admission lets in %s, but only %s leave since the limit was set live: the queue grows without bound", perSecond(in), perSecond(leak)))
	}
}

// served warns if jobs wait and no dispatcher serves the gateway.
func (x *examination) served(ctx context.Context, c redis.UniversalClient, g config.Gateway, v dispatch.Glance) error {
	last, serves, err := dispatch.LastServed(ctx, c, g.Name)
	if err != nil || serves || v.Queued+v.Retrying+v.Scheduled+v.InFlight+v.Pending == 0 {
		return err
	}
	if v.Refuses != "" {
		x.add(warn("dispatcher", g.Name, "see what is said of Redis above", "jobs wait, and Redis takes no writes: %s", v.Refuses))
		return nil
	}
	seen := "has ever served it"
	if !last.IsZero() {
		seen = "serves it since " + job.Moment(last)
	}
	x.add(warn("dispatcher", g.Name, "dispatcher run -g "+g.Name, "jobs wait, and no dispatcher %s", seen))
	return nil
}

// jobs samples jobs that were called and are not finished: how long calls take, and whether some only ever meet
// 429.
func (x *examination) jobs(ctx context.Context, c redis.UniversalClient, g config.Gateway, now time.Time) error {
	records, err := sample(ctx, c, g)
	if err != nil {
		return err
	}
	if err := x.sealed(ctx, c, g, records); err != nil {
		return err
	}
	var took []time.Duration
	var stuck []string
	for _, r := range records {
		for _, call := range r.Calls() {
			if call.Status > 0 && call.Status != http.StatusTooManyRequests {
				took = append(took, call.Took)
			}
		}
		if onlyTooMany(r, now) {
			stuck = append(stuck, r.Job.ID)
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		x.latency[g.Name] = took[len(took)/2]
	}
	if len(stuck) > 0 {
		x.add(warn("too_many", g.Name, "it is not the rate: look at the answer with \"dispatcher job "+dispatch.ShellWord(stuck[0])+"\", and give such answers a rule of their own (then: retry, or fewer)",
			"%d jobs have met 429 on every call for an hour: %s", len(stuck), strings.Join(stuck[:min(len(stuck), 3)], ", ")))
	}
	return nil
}

// onlyTooMany reports whether all known calls of a job met 429, the first of them more than an hour ago.
func onlyTooMany(r job.Record, now time.Time) bool {
	if r.State != job.Queued && r.State != job.Retrying && r.State != job.InFlight || len(r.Calls()) < 2 {
		return false
	}
	first := r.Calls()[0].At
	if !r.FirstCall.IsZero() && r.FirstCall.Before(first) {
		first = r.FirstCall
	}
	return now.Sub(first) >= stuckFor &&
		!slices.ContainsFunc(r.Calls(), func(c job.Call) bool { return c.Status != http.StatusTooManyRequests })
}

// sample reads some records: from the head of the queue, of jobs in a back-off, of calls in flight, and what
// one step of a scan finds.
func sample(ctx context.Context, c redis.UniversalClient, g config.Gateway) ([]job.Record, error) {
	k := redisdb.NewKeys(g.Name)
	ids := map[string]bool{}
	first, err := redisdb.FirstLines(ctx, c, k)
	if err != nil {
		return nil, err
	}
	for _, line := range append(first, k.Lines()...) {
		head, err := c.LRange(ctx, line, -sampled, -1).Result()
		if err != nil {
			return nil, err
		}
		for _, task := range head {
			if id, _, ok := job.ParseTaskID(task); ok {
				ids[id] = true
			}
		}
	}
	for _, set := range []string{k.Retrying(), k.Open()} {
		members, err := c.ZRange(ctx, set, 0, sampled-1).Result()
		if err != nil {
			return nil, err
		}
		for _, id := range members {
			ids[id] = true
		}
	}
	if err := scanned(ctx, c, k, ids); err != nil {
		return nil, err
	}
	return read(ctx, c, g, k, ids)
}

func scanned(ctx context.Context, c redis.UniversalClient, k redisdb.Keys, ids map[string]bool) error {
	node, err := redisdb.Node(ctx, c, k.Pending())
	if err != nil {
		return err
	}
	found, _, err := node.Scan(ctx, 0, k.JobPrefix()+"*", sampled).Result()
	for _, key := range found {
		ids[strings.TrimPrefix(key, k.JobPrefix())] = true
	}
	return err
}

func read(ctx context.Context, c redis.UniversalClient, g config.Gateway, k redisdb.Keys, ids map[string]bool) ([]job.Record, error) {
	var all []job.Record
	var failed error
	listed := slices.Sorted(maps.Keys(ids))
	fields := []string{"state", "first_call_at", "history"} // not the payload
	record.Reader{C: c, Keys: k, Fields: fields}.Read(ctx, listed, func(i int, h map[string]string, err error) {
		all, failed = append(all, record.Parse(g.Name, listed[i], h)), cmp.Or(failed, err)
	})
	return all, failed
}
