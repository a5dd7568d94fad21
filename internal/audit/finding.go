package audit

import (
	"strings"

	"spillway/internal/job"
)

// Wrong is what an audit finds.
type Wrong string

// What may be wrong with a job, or with a task or an entry that stands for one.
const (
	NoTask    Wrong = "no_task"    // queued, and no task of it is in the queue or pulled
	NoMessage Wrong = "no_message" // its task is there, without the message that a worker needs
	NotThere  Wrong = "not_there"  // it does not stand where its record says
	ThereToo  Wrong = "there_too"  // it stands where its record does not say
	AsynqSet  Wrong = "asynq_set"  // its task is in a set of asynq's, where nobody looks
	NoRecord  Wrong = "no_record"  // it stands somewhere, and has no record
	NoState   Wrong = "no_state"   // its record can't be read
	Expires   Wrong = "expires"    // its record would be forgotten, and it is not finished
	Totals    Wrong = "totals"     // the totals don't add up; no single job is meant
	// NoLane: it is queued in a lane that nobody looks at.
	NoLane Wrong = "no_lane"
	// LaneSets: a lane with jobs does not stand where it is to; Text names it.
	LaneSets Wrong = "lane_sets"
	// LaneCounts: what is said of how many jobs wait in lanes, or lanes have jobs, is not so; Text says which.
	LaneCounts Wrong = "lane_counts"
	// BatchBooks: the books of a batch differ from the records of its jobs; Where names it.
	BatchBooks Wrong = "batch_books"
	// MoneyBooks: the sums of the money that is parked differ from the records.
	MoneyBooks Wrong = "money_books"
	// BrakeSums: the money that brakes count in a window is not what its parts, or the calls of jobs, come to; Where names the window.
	BrakeSums Wrong = "brake_sums"
	// Outcomes: the outcome feed said something else last than the records do.
	Outcomes Wrong = "outcomes"
	// Trail: the trail is not what its chain says; Text says what was changed.
	Trail Wrong = "trail"
)

// What may be remarkable and is no fault.
const (
	OldTask     Wrong = "old_task"     // a task of a job that has moved on: whoever pulls it drops it
	ForeignTask Wrong = "foreign_task" // a task that is not ours: it is parked as unreadable when its turn comes
	// LanesUncounted: so many lanes have jobs, and these come and go, that nobody can hold what is said of their numbers against them.
	LanesUncounted Wrong = "lanes_uncounted"
)

// Finding is one thing that an audit has found.
type Finding struct {
	ID    string // of the job, or of the task if it is not one of a job; empty for the totals
	What  Wrong
	State job.State // that its record says; empty if there is none
	Where string    // the place that is meant: scheduled, retrying, open, asking, parked:REASON, parked:flows (the part that is of its flow), pending, active, or a set of asynq's
	Text  string    // of the totals, and of books
}

// mended and rewritten say what to do about most faults.
const (
	mended    = "a running dispatcher puts it right within two minutes; if it comes back, find out who else writes to this Redis"
	relaned   = "put it where it belongs with dispatcher audit --repair, and find out who else writes to this Redis"
	recounted = "count it anew with dispatcher audit --repair: what is missing counts as called now; and find out who else writes to this Redis"
	rewritten = "write them anew from the records with dispatcher audit --repair, and find out who else writes to this Redis"
)

// words say of each what is wrong, and what to do about it. STATE and WHERE stand for the finding's; without a text, it has its own.
var words = map[Wrong]struct{ text, hint string }{
	NoTask:    {"queued, but no task of it is in the queue or with a worker", mended},
	NoMessage: {"queued, but its task in WHERE has no message", mended},
	NotThere:  {"STATE, but not in WHERE", mended},
	ThereToo:  {"STATE, but in WHERE too", mended},
	AsynqSet:  {"its task is in asynq's WHERE set", mended},
	NoRecord: {"in WHERE, but it has no record",
		"its record was lost: find the job in the billing file by its id, ask the gateway whether it was charged, and enqueue it again if it was not"},
	NoState:     {"its record can't be read", "look at its record, find the job in the billing file by its id, and ask the gateway whether it was charged"},
	Expires:     {"STATE, but its record expires", "keep the record with redis-cli PERSIST, and find out who else writes to this Redis"},
	Totals:      {"", "jobs or counters were lost, or changed by hand: compare the batch with the billing file, and enqueue the file again: known jobs are duplicates"},
	NoLane:      {"queued, but its lane stands neither among those that may be called nor among those that wait", relaned},
	LaneSets:    {"", relaned},
	LaneCounts:  {"", rewritten},
	BatchBooks:  {"", rewritten},
	MoneyBooks:  {"", rewritten},
	BrakeSums:   {"", recounted},
	Outcomes:    {"", "tell the readers of outcomes what the record says (dispatcher export); have every program use a file with outcomes, and find out who else writes to this Redis"},
	Trail:       {"", "keep a copy of Redis's files, and compare with the logs of dispatchers and with exports: see docs/security.md, The trail"},
	OldTask:     {"in WHERE: a task of a job that has moved on", ""},
	ForeignTask: {"in WHERE: a task that is not a job's", ""},
	LanesUncounted: {"more lanes than can be counted at once have jobs, and jobs come and go: how many are said to wait in lanes was not held against these. Pause the gateway, and " +
		"audit it again", ""},
}

// Describe says in words what is wrong.
func (f Finding) Describe() string {
	if text := words[f.What].text; text != "" {
		return strings.NewReplacer("STATE", string(f.State), "WHERE", f.Where).Replace(text)
	}
	return f.Text
}

// Hint says what to do about it. It is empty for what is no fault.
func (f Finding) Hint() string { return words[f.What].hint }

// Fault reports whether it is one; all else is a note.
func (f Finding) Fault() bool {
	return f.What != OldTask && f.What != ForeignTask && f.What != LanesUncounted
}
