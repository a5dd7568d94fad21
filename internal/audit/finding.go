package audit

import (
	"strings"

	"spillway/internal/job"
)

// Wrong is what an audit finds.
type Wrong string

// What may be wrong with a job, or with a task or an entry that stands for one.
const (
	NoTask    Wrong = "no_task"    // queued, but no task of it is in the queue or pulled
	NoMessage Wrong = "no_message" // its task lacks the message that a worker needs
	NotThere  Wrong = "not_there"  // it is not where its record says
	ThereToo  Wrong = "there_too"  // it is somewhere that its record does not say
	AsynqSet  Wrong = "asynq_set"  // its task is in a set of asynq's that is never read
	NoRecord  Wrong = "no_record"  // it is somewhere, but has no record
	NoState   Wrong = "no_state"   // its record can't be parsed
	Expires   Wrong = "expires"    // its record would expire, and it is not finished
	Totals    Wrong = "totals"     // the totals don't add up; no single job is concerned
	// NoLane: it is queued in a lane that is never read.
	NoLane Wrong = "no_lane"
	// LaneSets: a lane with jobs is in the wrong place; Text names it.
	LaneSets Wrong = "lane_sets"
	// LaneCounts: a stored number of jobs in lanes, or of lanes with jobs, is wrong; Text says which.
	LaneCounts Wrong = "lane_counts"
	// BatchBooks: the totals of a batch differ from its jobs' records; Where names it.
	BatchBooks Wrong = "batch_books"
	// MoneyBooks: the sums of parked money differ from the records.
	MoneyBooks Wrong = "money_books"
	// BrakeSums: the money counted for brakes in a window differs from its parts, or from the jobs' calls; Where
	// names the window.
	BrakeSums Wrong = "brake_sums"
	// Outcomes: the outcome feed's last word differs from the records.
	Outcomes Wrong = "outcomes"
	// Trail: the audit trail differs from its chain; Text says what was changed.
	Trail Wrong = "trail"
)

// What may be remarkable without being a fault.
const (
	OldTask     Wrong = "old_task"     // a task of a job that has moved on: a worker that pulls it drops it
	ForeignTask Wrong = "foreign_task" // a foreign task: it is parked as unreadable in its turn
	// LanesUncounted: so many lanes have jobs that come and go that their stored numbers can't be checked.
	LanesUncounted Wrong = "lanes_uncounted"
)

// Finding is one finding of an audit.
type Finding struct {
	ID    string // of the job, or of the task if it is not a job's; empty for totals
	What  Wrong
	State job.State // from its record; empty if there is none
	Where string    // the place concerned: scheduled, retrying, open, asking, parked:REASON, parked:flows (the part of its flow), pending, active, or a set of asynq's
	Text  string    // of totals
}

// mended and rewritten are the remedies for most faults.
const (
	mended    = "a running dispatcher puts it right within two minutes; if it comes back, find out who else writes to this Redis"
	relaned   = "put it where it belongs with dispatcher audit --repair, and find out who else writes to this Redis"
	recounted = "recount it with dispatcher audit --repair: what is missing counts as called now; and find out what else writes to this Redis"
	rewritten = "rebuild them from the records with dispatcher audit --repair, and find out what else writes to this Redis"
)

// words are the description and remedy of each finding. STATE and WHERE stand for the finding's; an empty
// description means the finding's Text.
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

// Hint says what to do about it; empty if it is no fault.
func (f Finding) Hint() string { return words[f.What].hint }

// Fault reports whether it is a fault; otherwise it is a note.
func (f Finding) Fault() bool {
	return f.What != OldTask && f.What != ForeignTask && f.What != LanesUncounted
}
