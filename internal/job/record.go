package job

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Record is everything the ledger knows of one job.
type Record struct {
	Job           Job
	State         State
	Generation    int64
	KeyGeneration int64
	Attempts      int // calls made since it was last admitted, whatever they came to
	Spent         int // of retry.attempts, since then: calls that met a hold or an outage spend none
	Replays       int
	Accepted      time.Time
	Finished      time.Time
	Due           time.Time // end of its back-off
	Deadline      time.Time // of the open attempt
	FirstCall     time.Time // with the present idempotency key
	Reason        Reason
	Error         string
	ParkedAt      time.Time
	Edited        time.Time // when a person last gave it another payload; zero if nobody did
	Status        int       // HTTP status of the last answer; 0 if there was none
	Money         string    // as MoneyField writes it; empty where the gateway's jobs have none
	Reference     string    // the gateway's own, of the call that succeeded; empty if it gave none
	Unsure        bool      // a call with the present key may have charged
	Settled       Settlement
	History       []Call
	// Sealed is the payload as it is stored, where that is sealed. Job.Payload is empty where Unopened says why it can't be opened: it is sealed, or damaged.
	Sealed   []byte
	Unopened error
}

// Replaced says that the job was given another payload, and with it another key, since it was parked.
func (r Record) Replaced() bool { return !r.Edited.IsZero() && !r.Edited.Before(r.ParkedAt) }

// Over says that nothing more is to be done for the job: it is done or discarded. Its record has no payload any more, nor what the gateway said when
// it failed.
func (r Record) Over() bool { return r.State == Done || r.State == Discarded }

// PayloadGone says what became of the payload of a job that is over, for a person; empty where the job has its payload.
func (r Record) PayloadGone() string {
	if !r.Over() || len(r.Job.Payload)+len(r.Sealed) > 0 {
		return ""
	}
	return "deleted when the job was " + string(r.State)
}

// Call is one line of a record's history.
type Call struct {
	At      time.Time
	Took    time.Duration
	Status  int    // 0 without an answer
	Verdict string // a Verdict, or cut_off: its worker died with the call under way
}

// ParseRecord reads a record's hash; its fields are laid out in internal/redisdb/record.lua.
func ParseRecord(gateway, id string, h map[string]string) Record {
	number := func(field string) int64 { n, _ := strconv.ParseInt(h[field], 10, 64); return n }
	at := func(field string) time.Time { return micros(number(field)) }
	payload, damaged := PayloadOf(gateway, id, h)
	return Record{
		Job: Job{ID: id, Gateway: gateway, Payload: payload, Cost: max(number("c"), 1),
			At: at("at"), Expires: at("x"), Batch: h["b"]},
		State: State(h["s"]), Generation: number("g"), KeyGeneration: max(number("k"), 1),
		Attempts: callsMade(h), Spent: int(number("n")), Replays: int(number("y")),
		Accepted: at("t"), Finished: at("fin"), Due: at("due"), Deadline: at("od"), FirstCall: at("f"),
		Reason: Reason(h["r"]), Error: h["e"], ParkedAt: at("pa"), Edited: at("ed"), Status: int(number("st")), Unsure: h["am"] == "1", Reference: h["ref"], Money: h["m"],
		Settled: parseSettlement(h["by"]),
		History: parseHistory(h["h"]), Unopened: damaged,
	}
}

// RecordFields returns every field of a record's hash that ParseRecord reads, but for the payload, which may have a megabyte.
func RecordFields() []string {
	return []string{"s", "g", "k", "n", "y", "t", "c", "b", "at", "x", "f", "od", "fin", "due", "am", "r", "e", "pa", "st", "h", "ca", "ed", "ref", "m", "by"}
}

// PayloadFields returns every field of a record's hash that a payload may be in.
func PayloadFields() []string {
	return []string{"p", "pn", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"}
}

// ErrDamaged is the error of a payload that was damaged in Redis.
var ErrDamaged = errors.New("its payload is damaged in Redis")

// PayloadOf puts a payload together from the fields that PayloadFields names; empty where the record has none, or none any more. The error is
// ErrDamaged where pn is not the number of the pieces that are there.
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
			ErrDamaged, gateway, id)
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
		calls = append(calls, Call{At: micros(at), Took: time.Duration(took) * time.Microsecond, Status: status, Verdict: f[3]})
	}
	return calls
}

func micros(us int64) time.Time {
	if us <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
