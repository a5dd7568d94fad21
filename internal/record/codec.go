package record

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

// Parse reads a record's hash.
func Parse(gateway, id string, h map[string]string) job.Record {
	number := func(field string) int64 { n, _ := strconv.ParseInt(h[field], 10, 64); return n }
	at := func(field string) time.Time { return Moment(number(field)) }
	payload, damaged := PayloadOf(gateway, id, h)
	return job.Record{
		Job: job.Job{ID: id, Gateway: gateway, Payload: payload, Cost: max(number("c"), 1),
			At: at("at"), Expires: at("x"), Batch: h["b"]},
		State: job.State(h["s"]), Generation: number("g"), KeyGeneration: max(number("k"), 1),
		Attempts: callsMade(h), Spent: int(number("n")), Replays: int(number("y")),
		Accepted: at("t"), Finished: at("fin"), Due: at("due"), Deadline: at("od"), FirstCall: at("f"),
		Reason: job.Reason(h["r"]), Error: h["e"], ParkedAt: at("pa"), Edited: at("ed"), Status: int(number("st")), Unsure: h["am"] == "1", Reference: h["ref"], Money: h["m"],
		Settled: parseSettlement(h["by"]),
		History: parseHistory(h["h"]), Unopened: damaged,
	}
}

// Fields returns every field of a record's hash that Parse reads, but for the payload, which may have a megabyte.
func Fields() []string {
	return []string{"s", "g", "k", "n", "y", "t", "c", "b", "at", "x", "f", "od", "fin", "due", "am", "r", "e", "pa", "st", "h", "ca", "ed", "ref", "m", "by"}
}

// PayloadFields returns every field of a record's hash that a payload may be in.
func PayloadFields() []string {
	return []string{"p", "pn", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"}
}

// PayloadOf puts a payload together from the fields that PayloadFields names; empty where the record has none, or none any more. The error is
// job.ErrDamaged where pn is not the number of the pieces that are there.
func PayloadOf(gateway, id string, h map[string]string) ([]byte, error) {
	text, cut := h["pn"]
	if !cut {
		return []byte(h["p"]), nil
	}
	var whole []byte
	pieces, err := strconv.Atoi(text)
	there := err == nil && pieces >= 1 && pieces <= len(PayloadFields())-2
	for i := 1; there && i <= pieces; i++ {
		var piece string
		piece, there = h["p"+strconv.Itoa(i)]
		whole = append(whole, piece...)
	}
	if !there {
		return nil, fmt.Errorf("%w: somebody has written into its record, spillway:{%s}:job:%s; compare it with the billing file, discard it, and enqueue it under another id",
			job.ErrDamaged, gateway, id)
	}
	return whole, nil
}

// callsMade is calls_made of record.lua.
func callsMade(h map[string]string) int {
	field := "n"
	switch {
	case h["ca"] != "" || h["h"] == "":
		field = "ca"
	case h["y"] == "":
		return strings.Count(h["h"], "\n")
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

// Moment is a time in µs on Redis's clock, as scripts have it; zero is the zero time.
func Moment(us int64) time.Time {
	if us <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Micros is a time as scripts have it: Moment's reverse.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// parseSettlement reads the field by of a record: "done 1763742851000001 17".
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
