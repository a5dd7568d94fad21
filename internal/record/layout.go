package record

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Erased replaces the digest of an erased job: its id is known, but not what its payload was.
const Erased = "-"

// pieces is the most parts that a payload is split into (payload_put in record.lua).
const pieces = 8

// layout is the only table of a record's fields, in the hash spillway:{gateway}:job:<id>. Every record has
// state, generation, digest and accepted_at; all other fields may be absent. Times are in µs on Redis's clock.
// Scripts write a field as @name, and Expand replaces that with its short name, because Redis holds millions of
// records.
var layout = append([]field{
	{"state", "s", listed, "a job.State"},
	{"generation", "g", listed, "of the task; one more each time the job enters the queue"},
	{"key_generation", "k", listed, "of the idempotency key; absent: 1"},
	{"spent", "n", listed | past, "attempts that count, since it was last admitted"},
	{"replays", "y", listed, "how often it was taken in again after it was parked"},
	{"accepted_at", "t", listed, ""},
	{"cost", "c", listed, "units of each limit; absent: 1"},
	{"batch", "b", listed, "its name"},
	{"priority", "cl", listed, "its class; absent: the usual one"},
	{"lane", "ln", listed, "its line among the gateway's; absent: that of jobs that have none"},
	{"route", "rt", listed, "the gateway's named request; absent: its own"},
	{"not_before", "at", listed | over, "the time for which it is scheduled"},
	{"expires_at", "x", listed | over, "no call begins from then on"},
	{"first_call_at", "f", listed | over, "with the present key"},
	{"deadline", "od", listed, "of the open attempt"},
	{"finished_at", "fin", listed, ""},
	{"due_at", "due", listed | over, "end of the back-off"},
	{"may_have_charged", "am", listed | done, `"1": a call with the present key may have`},
	{"reason", "r", listed | past | done, "why it is parked"},
	{"error", "e", listed | past | over, "what went wrong last"},
	{"parked_at", "pa", listed | past | done, "unique within the gateway"},
	{"status", "st", listed | past, "HTTP status of the last answer"},
	{"history", "h", listed, `a line for each call: "at_us took_us status verdict"; the oldest go beyond 2000 bytes`},
	{"calls", "ca", listed, "since it was last admitted; absent: see calls_made in record.lua"},
	{"edited_at", "ed", listed, "when a person last gave it another payload; before parked_at: it was taken in since"},
	{"reference", "ref", listed, "the gateway's own name for the payment"},
	{"money", "m", listed, `"1050 EUR" in minor units; "1050 " without a currency; "-": can't be read; absent: the gateway's jobs have none`},
	{"settled", "by", listed, `how a person last settled what its calls came to: "done" or "not_done", when, and the act's place in the trail`},
	{"asked", "lq", listed | past | over, "look-ups that were made since the call in doubt ended, but for those that failed"},
	{"ask_at", "la", listed | past | over, "when the next look-up is due"},
	{"seen", "ls", listed | past | over, "what the last look-up saw"},
	{"call_ended_at", "ce", listed | past | over, "end of the call in doubt"},
	{"accepted_by_gateway", "ag", listed | past | over, `"1": the gateway has said that it accepted the payment`},
	{"absent", "lz", past | over, "how many of the last look-ups in a row said not_done"},
	{"absent_key", "lk", over, "key_generation when look-ups last found no payment of the job: its calls before left none that a look-up could show"},
	{"ask_failed", "lf", past | over, "how many of the last look-ups in a row failed"},
	{"ask_failing", "lg", listed | past | over, "when the first of them ended"},
	{"ask_owner", "lo", past | over, "of the look-up under way"},
	{"erased_at", "er", listed, "when a person had what is known of people erased from it (erase.lua)"},
	{"digest", "d", 0, "of the payload; Erased: it was erased"},
	{"owner", "o", 0, "of the open attempt"},
	{"opened_at", "oa", 0, "of the open attempt; absent: only to park the job, and nothing is sent"},
	{"sent_digest", "sd", over, "what the present key's first call was made of, but for the payload (job.SentDigest)"},
	{"first_call_back", "fb", listed | over, "by how much Redis's clock had been set back in all when first_call_at was written (alive.lua)"},
	{"looked_up_at", "kn", over, "when a person last settled what earlier calls came to"},
	{"counted", "mc", over, "what brakes have counted for the open attempt (brakes.lua)"},
	{"late_success", "paid", over, "a call succeeded while another one was under way: the dedupe window that it asks for, in ms"},
	{"self_replays", "ya", 0, "how often it went in by itself after it was parked as exhausted (books.lua)"},
	{"despite_cancel", "rc", over, `"1": a person took it in again after its batch was cancelled`},
	{"failures", "fl", past | over, "when the failures that count were, a space after each (outage.lua)"},
	{"outages_met", "fo", past | over, "how many outages of the gateway it met"},
	{"last_outage", "fq", past | over, "when the last one of them began"},
	{"payload", "p", payload | over, "whole, where it is short or long"},
	{"pieces", "pn", payload | over, "in how many parts it is cut, payload1, payload2 and so on, where it is neither"},
}, parts()...)

// field is one field of a record.
type field struct {
	name  string // in Go, and after an @ in scripts
	short string // in Redis
	flags flags
	means string
}

type flags int

const (
	listed  flags = 1 << iota // Parse reads it, so listings request it
	payload                   // may contain a payload
	over                      // deleted when the job is done or discarded
	done                      // deleted when the job is done, kept when it is discarded
	past                      // deleted when the job is no longer parked
)

// lists are the lists of fields available to scripts: @@over stands for the short names of the fields deleted
// when the job is over.
var lists = map[string]flags{"payload": payload, "over": over, "done": done, "past": past}

func parts() (all []field) {
	for i := 1; i <= pieces; i++ {
		n := strconv.Itoa(i)
		all = append(all, field{"payload" + n, "p" + n, payload, ""})
	}
	return all
}

// shorts maps names to short names, and names the reverse.
var shorts, names = func() (map[string]string, map[string]string) {
	shorts, names := map[string]string{}, map[string]string{}
	for _, f := range layout {
		shorts[f.name], names[f.short] = f.short, f.name
	}
	return shorts, names
}()

// Short returns a field's name in Redis. It panics for an unknown field.
func Short(name string) string {
	short, ok := shorts[name]
	if !ok {
		panic(fmt.Sprintf("a record has no field %q: internal/record/layout.go has all", name))
	}
	return short
}

// Shorts returns fields' names in Redis, for HMGET. It panics for an unknown field.
func Shorts(fields []string) []string {
	all := make([]string, len(fields))
	for i, name := range fields {
		all[i] = Short(name)
	}
	return all
}

var marked = regexp.MustCompile(`@@?[a-z][a-z0-9_]*`)

// Expand replaces field names in a script by those in Redis: @state by that of the field state, and @@over by
// the quoted names of all fields deleted when a job is over. It panics for an unknown field or list.
func Expand(script string) string {
	return marked.ReplaceAllStringFunc(script, func(mark string) string {
		list, is := strings.CutPrefix(mark, "@@")
		if !is {
			return Short(mark[1:])
		}
		flag, ok := lists[list]
		if !ok {
			panic(fmt.Sprintf("a record has no fields %q: internal/record/layout.go has all lists", list))
		}
		return "'" + strings.Join(Shorts(with(flag)), "', '") + "'"
	})
}

// with returns the names of the fields with a flag, in table order.
func with(flag flags) (all []string) {
	for _, f := range layout {
		if f.flags&flag != 0 {
			all = append(all, f.name)
		}
	}
	return all
}

// Listed returns every field that Parse reads except the payload, which may be a megabyte.
func Listed() []string { return with(listed) }

// PayloadFields returns every field that may contain a payload.
func PayloadFields() []string { return with(payload) }

// Named returns the result of HGETALL with full field names. Unknown fields are dropped.
func Named(hash map[string]string) map[string]string {
	h := make(map[string]string, len(hash))
	for short, value := range hash {
		h[names[short]] = value
	}
	return h
}

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
	cmds, args := make([]*redis.SliceCmd, len(ids)), commands(len(ids), "hmget", Shorts(r.Fields)...)
	_, _ = r.C.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, id := range ids {
			args[i][1] = r.Keys.Job(id)
			cmds[i] = redis.NewSliceCmd(ctx, args[i]...)
			_ = p.Process(ctx, cmds[i])
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

// commands returns the arguments of n commands without their keys, which come second. Made one by one, as the client
// does, each argument would take memory of its own.
func commands(n int, name string, fields ...string) [][]any {
	first := []any{name, nil}
	for _, f := range fields {
		first = append(first, f)
	}
	all, flat := make([][]any, n), make([]any, 0, n*len(first))
	for i := range all {
		flat = append(flat, first...)
		all[i] = flat[i*len(first) : (i+1)*len(first) : (i+1)*len(first)]
	}
	return all
}

// Parse parses a record's fields, given by name. Fields missing from h are zero.
func Parse(gateway, id string, h map[string]string) job.Record {
	number := func(field string) int64 {
		text := h[field]
		if text == "" { // most are: an error would take memory
			return 0
		}
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	at := func(field string) time.Time { return Moment(number(field)) }
	payload, damaged := PayloadOf(gateway, id, h)
	return job.Record{
		Job: job.Job{ID: id, Gateway: gateway, Payload: payload, Cost: max(number("cost"), 1),
			At: at("not_before"), Expires: at("expires_at"), Batch: h["batch"], Route: h["route"], Priority: h["priority"], Lane: h["lane"]},
		State: job.State(h["state"]), Generation: number("generation"), KeyGeneration: max(number("key_generation"), 1),
		Attempts: callsMade(h), Spent: int(number("spent")), Replays: int(number("replays")),
		Accepted: at("accepted_at"), Finished: at("finished_at"), Due: at("due_at"), Deadline: at("deadline"), FirstCall: at("first_call_at"), FirstCallBack: time.Duration(number("first_call_back")) * time.Microsecond,
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
