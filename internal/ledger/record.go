package ledger

import (
	"context"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

// Record is everything the ledger knows of one job.
type Record struct {
	Job           job.Job
	State         job.State
	Generation    int64
	KeyGeneration int64
	Attempts      int // spent since it was last admitted
	Replays       int
	Accepted      time.Time
	Finished      time.Time
	Due           time.Time // end of its back-off
	Deadline      time.Time // of the open attempt
	FirstCall     time.Time // with the present idempotency key
	Reason        job.Reason
	Error         string
	ParkedAt      time.Time
	Status        int // HTTP status of the last answer; 0 if there was none
	History       []Call
}

// Call is one line of a record's history.
type Call struct {
	At      time.Time
	Took    time.Duration
	Status  int    // 0 without an answer
	Verdict string // a job.Verdict, or cut_off: its worker died with the call under way
}

// Find returns the record of a job; ok is false if there is none, or no more.
func (b *Books) Find(ctx context.Context, id string) (r Record, ok bool, err error) {
	h, err := b.c.HGetAll(ctx, b.keys.Job(id)).Result()
	if err != nil || len(h) == 0 {
		return Record{}, false, err
	}
	r = ParseRecord(b.cfg.Gateway, id, h)
	if r.State != job.Queued {
		return r, true, nil
	}
	// Pulled by a worker that has not opened its attempt yet: asynq knows, the record doesn't.
	state, err := b.c.HGet(ctx, b.keys.Task(job.TaskID(id, r.Generation)), "state").Result()
	if err == nil && state == "active" {
		r.State = job.InFlight
	}
	return r, true, nil
}

// ParseRecord reads a record's hash.
func ParseRecord(gateway, id string, h map[string]string) Record {
	number := func(field string) int64 { n, _ := strconv.ParseInt(h[field], 10, 64); return n }
	at := func(field string) time.Time { return moment(number(field)) }
	return Record{
		Job: job.Job{ID: id, Gateway: gateway, Payload: []byte(h["p"]), Cost: max(number("c"), 1),
			At: at("at"), Expires: at("x"), Batch: h["b"]},
		State: job.State(h["s"]), Generation: number("g"), KeyGeneration: max(number("k"), 1),
		Attempts: int(number("n")), Replays: int(number("y")),
		Accepted: at("t"), Finished: at("fin"), Due: at("due"), Deadline: at("od"), FirstCall: at("f"),
		Reason: job.Reason(h["r"]), Error: h["e"], ParkedAt: at("pa"), Status: int(number("st")),
		History: parseHistory(h["h"]),
	}
}

func parseHistory(text string) []Call {
	var calls []Call
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 4 {
			continue
		}
		at, _ := strconv.ParseInt(f[0], 10, 64)
		took, _ := strconv.ParseInt(f[1], 10, 64)
		status, _ := strconv.Atoi(f[2])
		calls = append(calls, Call{At: moment(at), Took: time.Duration(took) * time.Microsecond, Status: status, Verdict: f[3]})
	}
	return calls
}
