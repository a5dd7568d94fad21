package job

import (
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
	Attempts      int // spent since it was last admitted
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
	History       []Call
	// Sealed is the payload as it is stored, where that is sealed. Job.Payload is then empty where Unopened says why it can't be opened.
	Sealed   []byte
	Unopened error
}

// Replaced says that the job was given another payload, and with it another key, since it was parked.
func (r Record) Replaced() bool { return !r.Edited.IsZero() && !r.Edited.Before(r.ParkedAt) }

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
	return Record{
		Job: Job{ID: id, Gateway: gateway, Payload: PayloadOf(h), Cost: max(number("c"), 1),
			At: at("at"), Expires: at("x"), Batch: h["b"]},
		State: State(h["s"]), Generation: number("g"), KeyGeneration: max(number("k"), 1),
		Attempts: int(number("n")), Replays: int(number("y")),
		Accepted: at("t"), Finished: at("fin"), Due: at("due"), Deadline: at("od"), FirstCall: at("f"),
		Reason: Reason(h["r"]), Error: h["e"], ParkedAt: at("pa"), Edited: at("ed"), Status: int(number("st")), Unsure: h["am"] == "1", Reference: h["ref"], Money: h["m"],
		History: parseHistory(h["h"]),
	}
}

// PayloadFields returns every field of a record's hash that a payload may be in.
func PayloadFields() []string {
	return []string{"p", "pn", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"}
}

// PayloadOf puts a payload together from the fields that PayloadFields names; empty where the record has none, or none any more.
func PayloadOf(h map[string]string) []byte {
	pieces, err := strconv.Atoi(h["pn"])
	if err != nil {
		return []byte(h["p"])
	}
	var whole []byte
	for i := range pieces {
		whole = append(whole, h["p"+strconv.Itoa(i+1)]...)
	}
	return whole
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
