package record

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Reader reads fields of the records of a gateway's jobs.
type Reader struct {
	C      redis.UniversalClient
	Keys   redisdb.Keys
	Fields []string // by name; Read panics for an unknown field
}

// Read reads the records of these jobs in one round trip and calls see for each in order. see gets the fields
// by name, without those absent from the record, or the error if a record can't be read. The map is reused
// after see returns.
func (r Reader) Read(ctx context.Context, ids []string, see func(i int, h map[string]string, err error)) {
	cmds, shorts := make([]*redis.SliceCmd, len(ids)), Shorts(r.Fields)
	_, _ = r.C.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, id := range ids {
			cmds[i] = p.HMGet(ctx, r.Keys.Job(id), shorts...)
		}
		return nil
	})
	h := make(map[string]string, len(r.Fields))
	for i, cmd := range cmds {
		clear(h)
		for n, v := range cmd.Val() {
			if text, ok := v.(string); ok {
				h[r.Fields[n]] = text
			}
		}
		see(i, h, cmd.Err())
	}
}

// Parse parses a record's fields, given by name. Fields missing from h are zero.
func Parse(gateway, id string, h map[string]string) job.Record {
	number := func(field string) int64 { n, _ := strconv.ParseInt(h[field], 10, 64); return n }
	at := func(field string) time.Time { return Moment(number(field)) }
	payload, damaged := PayloadOf(gateway, id, h)
	return job.Record{
		Job: job.Job{ID: id, Gateway: gateway, Payload: payload, Cost: max(number("cost"), 1),
			At: at("not_before"), Expires: at("expires_at"), Batch: h["batch"], Route: h["route"], Priority: h["priority"], Lane: h["lane"]},
		State: job.State(h["state"]), Generation: number("generation"), KeyGeneration: max(number("key_generation"), 1),
		Attempts: callsMade(h), Spent: int(number("spent")), Replays: int(number("replays")),
		Accepted: at("accepted_at"), Finished: at("finished_at"), Due: at("due_at"), Deadline: at("deadline"), FirstCall: at("first_call_at"),
		Reason: job.Reason(h["reason"]), Error: h["error"], ParkedAt: at("parked_at"), Edited: at("edited_at"), Erased: at("erased_at"), Status: int(number("status")),
		Unsure: h["may_have_charged"] == "1", Reference: h["reference"], Money: h["money"], Settled: parseSettlement(h["settled"]),
		Looks: int(number("asked")), NextLook: at("ask_at"), LookFailing: at("ask_failing"), LastSeen: h["seen"], CallEnded: at("call_ended_at"), Taken: h["accepted_by_gateway"] == "1",
		History: parseHistory(h["history"]), Unopened: damaged,
	}
}

// PayloadOf assembles a payload from the fields that PayloadFields names. It is empty if the record has none,
// or has it no longer. The error is job.ErrDamaged if pieces are missing.
func PayloadOf(gateway, id string, h map[string]string) ([]byte, error) {
	text, cut := h["pieces"]
	if !cut {
		return []byte(h["payload"]), nil
	}
	var whole []byte
	n, err := strconv.Atoi(text)
	there := err == nil && n >= 1 && n <= pieces
	for i := 1; there && i <= n; i++ {
		var piece string
		piece, there = h["payload"+strconv.Itoa(i)]
		whole = append(whole, piece...)
	}
	if !there {
		return nil, fmt.Errorf("%w: another program has written to its record, spillway:{%s}:job:%s; compare it with the billing file, discard it, and enqueue it under another id",
			job.ErrDamaged, gateway, id)
	}
	return whole, nil
}

// callsMade is calls_made of record.lua.
func callsMade(h map[string]string) int {
	field := "spent"
	switch {
	case h["calls"] != "" || h["history"] == "":
		field = "calls"
	case h["replays"] == "":
		return strings.Count(h["history"], "\n")
	}
	n, _ := strconv.Atoi(h[field])
	return n
}

func parseHistory(text string) []job.Call {
	var calls []job.Call
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 4 {
			continue
		}
		at, _ := strconv.ParseInt(f[0], 10, 64)
		took, _ := strconv.ParseInt(f[1], 10, 64)
		status, _ := strconv.Atoi(f[2])
		calls = append(calls, job.Call{At: Moment(at), Took: time.Duration(took) * time.Microsecond, Status: status, Verdict: f[3]})
	}
	return calls
}

// Moment converts a time in µs on Redis's clock, as scripts use it. Zero is the zero time.
func Moment(us int64) time.Time {
	if us <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Micros is the inverse of Moment.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// parseSettlement parses the field settled: "done 1763742851000001 17".
func parseSettlement(text string) job.Settlement {
	f := strings.Split(text, " ")
	if len(f) != 3 {
		return job.Settlement{}
	}
	us, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return job.Settlement{}
	}
	return job.Settlement{Done: f[0] == "done", At: Moment(us), Act: f[2]}
}
