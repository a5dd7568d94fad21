package deadletter

import (
	"context"
	_ "embed" // the scripts are files
	"errors"
	"fmt"
	"strconv"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

//go:embed replace.lua
var replaceLua string

var replaceScript = redisdb.NewScript(redisdb.NowLua, redisdb.RecordLua, replaceLua)

// Replaced is what became of one replacement.
type Replaced struct {
	// Return is the job on its way back in; only where neither Same nor Err is set.
	Return job.Return
	// Same means that the job has this payload already: nothing was changed, and it is not to be replayed.
	Same bool
	// Err says why the job can't have another payload; it never holds the payload.
	Err error
}

var (
	errNotKnown    = errors.New("no such job is known: enqueue it without --replace")
	errMayCharged  = errors.New(`an earlier call may have charged: look it up, and use "dlq resolve" if it is parked as unknown_outcome, or replay it as it is`)
	errNotAJob     = errors.New("it is parked as unreadable: it was never a job; enqueue one under an id of its own")
	errPastExpiry  = errors.New("its time to expire has passed: enqueue it under another id")
	errMoved       = errors.New("it was changed by somebody else just now: look at it again")
	errOnlyPayload = errors.New("a replacement changes the payload alone: leave cost, at, expires and batch as they are")
)

// Replace gives parked jobs of the store's gateway other payloads, with the next generation of their idempotency keys, and
// returns them ready to be taken in again. A job that was replaced before, and not taken in since, is ready too. The
// line's cost, times and batch must be the job's, or zero. digests belong to the jobs' payloads, both in plain. Keep chunks to a few hundred jobs.
func (s *Store) Replace(ctx context.Context, r Rules, jobs []job.Job, digests []string) ([]Replaced, error) {
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	found, err := s.read(ctx, ids, append([]string{"d"}, allFields...))
	if err != nil {
		return nil, err
	}
	all := make([]Replaced, len(jobs))
	var keys []string
	var places []int
	args := []any{s.now()}
	seen := map[string]bool{}
	for i, h := range found {
		rec := job.ParseRecord(s.gateway, ids[i], h)
		all[i].Return = job.Return{ID: ids[i], Generation: rec.Generation, Reason: rec.Reason, Key: job.KeepKey}
		same := s.box.SameDigest(ids[i], digests[i], h["d"])
		all[i].Same, all[i].Err = r.replaceable(rec, jobs[i], same)
		if all[i].Err != nil || all[i].Same || same {
			continue
		}
		if seen[ids[i]] {
			all[i].Err = errMoved
			continue
		}
		seen[ids[i]] = true
		stored, err := s.box.Seal(ids[i], jobs[i].Payload)
		if err != nil {
			return nil, err
		}
		keys, places = append(keys, s.keys.Job(ids[i])), append(places, i)
		args = append(args, strconv.FormatInt(rec.Generation, 10), string(rec.Reason), h["d"], stored, s.box.Digest(ids[i], digests[i]), r.money(jobs[i].Payload))
	}
	if len(keys) == 0 {
		return all, nil
	}
	done, err := taken(replaceScript.Run(ctx, s.c, keys, args...), "replace.lua", len(keys))
	for i := range done {
		if !done[i] {
			all[places[i]].Err = errMoved
		}
	}
	return all, err
}

// replaceable says whether nothing is to be changed, or why nothing may be. same: the job has this payload now.
func (r Rules) replaceable(rec job.Record, to job.Job, same bool) (unchanged bool, err error) {
	switch {
	case rec.State == "":
		return false, errNotKnown
	case rec.State != job.Parked && same:
		return true, nil
	case rec.State != job.Parked:
		return false, fmt.Errorf("it is %s: only a parked job can have another payload", rec.State)
	case rec.Reason == job.Unreadable:
		return false, errNotAJob
	case !sameBut(rec.Job, to):
		return false, errOnlyPayload
	case same && !rec.Replaced():
		return true, nil
	case r.expired(rec):
		return false, errPastExpiry
	case (rec.Unsure || rec.Reason == job.UnknownOutcome) && !saidNo(rec):
		return false, errMayCharged
	}
	return false, nil
}

// sameBut reports that a line says nothing else of a job than its record, but for the payload.
func sameBut(is, line job.Job) bool {
	return (line.Cost == 0 || line.Cost == is.Cost) && (line.Batch == "" || line.Batch == is.Batch) &&
		(line.At.IsZero() || line.At.Equal(is.At)) && (line.Expires.IsZero() || line.Expires.Equal(is.Expires))
}
