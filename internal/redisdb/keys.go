package redisdb

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

// Every key of a gateway has the hash tag {gateway}, as asynq's keys have, so that one script can use all of them.

const prefix = "spillway:{"

// Keys names the Redis keys of one gateway.
type Keys struct{ own, asynq string }

// NewKeys returns the key names of a gateway.
func NewKeys(gateway string) Keys {
	return Keys{own: prefix + gateway + "}:", asynq: "asynq:{" + gateway + "}:"}
}

// The types of keys, named as by Redis's TYPE.
const (
	hash   = "hash"
	list   = "list"
	zset   = "zset"
	text   = "string"
	stream = "stream"
	oneOf  = "*" // suffix of names that stand for several keys of a gateway
	paceOf = "pace:"
)

// ownTypes and asynqTypes are the types of a gateway's keys, by what follows the hash tag.
var (
	ownTypes = map[string]string{
		"access": hash, "admission": hash, "pace": hash, "hold": hash, "flight": zset, "scheduled": zset, "retrying": zset, "asking": zset, "looks": hash, "retries": list, "replays": list,
		"due": list, "costs": hash, "open": zset, "counters": hash, "again": zset, "rate": hash, "hours": hash, "moments": hash, "limits": hash, "alive": hash, "slow": hash,
		"classes": hash, "first:" + oneOf: list, "trail": list, "journal": list, "head": text, "acts": hash, "batches": zset, "money": hash, "braked": zset, "brakes": hash, "awaiting": zset, "requests": zset, "request:" + oneOf: hash, "prints:" + oneOf: text, "shelving": hash, "feed": hash, "outcomes": stream, "outcomes:anew": stream, "mend": text, "erase": text, "nobodys": text, "mark": text,
		"lanes": hash, "overrides": hash, "acted:" + oneOf: hash, "ready:" + oneOf: zset, "throttled": zset, "flow:" + oneOf: list, "lane:" + oneOf: text, "route:" + oneOf: text,
		"hold:" + oneOf: hash, "flight:" + oneOf: zset, "asked:" + oneOf: text,
		"job:" + oneOf: hash, "access:" + oneOf: hash, paceOf + oneOf: list, "parked:" + oneOf: zset, "parked:flows": zset, "parked:rejected:unfit": zset, "batch:" + oneOf: hash, "batch-ids:" + oneOf: list, "receipt:" + oneOf: text, "entering:" + oneOf: hash,
	}
	asynqTypes = map[string]string{"pending": list, "paused": text, "active": list, "lease": zset, "retry": zset, "archived": zset, "scheduled": zset,
		"completed": zset, "processed": text, "t:" + oneOf: hash, "processed:" + oneOf: text}
)

// TypeOf returns the type of a key with that name, as Redis's TYPE names it; empty if the key is not Spillway's.
func TypeOf(key string) string {
	types := ownTypes
	if strings.HasPrefix(key, "asynq:") {
		types = asynqTypes
	}
	_, rest, found := strings.Cut(key, "}:")
	if !found {
		return ""
	}
	if t := types[rest]; t != "" {
		return t
	}
	kind, _, several := strings.Cut(rest, ":")
	if !several {
		return ""
	}
	return types[kind+":"+oneOf]
}

// Whole returns the keys that a gateway has only one of, in no particular order.
func (k Keys) Whole() (keys []string) {
	for start, types := range map[string]map[string]string{k.own: ownTypes, k.asynq: asynqTypes} {
		for name := range types {
			if !strings.HasSuffix(name, oneOf) {
				keys = append(keys, start+name)
			}
		}
	}
	return keys
}

// Job is the record of one job (hash; fields in internal/record/layout.go).
func (k Keys) Job(id string) string { return k.own + "job:" + id }

// Aside is the old value of a job's record that another program had written to (of any type; see record.SetAside).
func (k Keys) Aside(id string) string { return k.own + "aside:" + id }

// JobPrefix is the prefix of Job, for scripts that read ids from Redis.
func (k Keys) JobPrefix() string { return k.own + "job:" }

// AnyJob is the pattern for SCAN that matches Job of every gateway.
const AnyJob = prefix + "*}:job:*"

// JobOf returns the gateway and id of a Job key; ok is false for another key.
func JobOf(key string) (gateway, id string, ok bool) {
	rest, ours := strings.CutPrefix(key, prefix)
	gateway, id, found := strings.Cut(rest, "}:job:")
	return gateway, id, ours && found
}

// Nobodys is a key that never exists. A script that lists it runs on no node of a cluster while its slot moves: either node
// refuses several keys if it lacks one.
func (k Keys) Nobodys() string { return k.own + "nobodys" }

// Access is why the gateway has no access token (hash; absent if it has one).
func (k Keys) Access() string { return k.own + "access" }

// AccessOf is the access token for credentials with that digest, and who fetches it (hash; absent once the token has expired).
func (k Keys) AccessOf(digest string) string { return k.own + "access:" + digest }

// Admission is the state of the admission check (hash).
func (k Keys) Admission() string { return k.own + "admission" }

// Pace is the state of the pacer (hash).
func (k Keys) Pace() string { return k.own + "pace" }

// PaceWindow is the list of permits of the pacer's window number n, from 1.
func (k Keys) PaceWindow(n int) string { return k.own + "pace:w" + strconv.Itoa(n) }

// PaceKept is the list of permits of the pacer's window number n, from 1, for windows no longer in force.
func (k Keys) PaceKept(n int) string { return k.own + "pace:k" + strconv.Itoa(n) }

// Hold is the hold that every pacer observes (hash).
func (k Keys) Hold() string { return k.own + "hold" }

// Flight is the leases of calls in flight (sorted set: lease, end of lease in µs).
func (k Keys) Flight() string { return k.own + "flight" }

// Scheduled is the jobs that wait for their time (sorted set: job id, its time in µs).
func (k Keys) Scheduled() string { return k.own + "scheduled" }

// Retrying is the jobs that wait for a back-off (sorted set: job id, due time in µs).
func (k Keys) Retrying() string { return k.own + "retrying" }

// Asking is the jobs whose outcome is looked up (sorted set: job id, when its next look-up is due in µs).
func (k Keys) Asking() string { return k.own + "asking" }

// Looks is the limits on look-ups, over all processes (hash; fields in internal/record/look_claim.lua).
func (k Keys) Looks() string { return k.own + "looks" }

// Retries is the queue's line of jobs called before, whose back-off is over (list of task ids, as Pending).
func (k Keys) Retries() string { return k.own + "retries" }

// Replays is the queue's line of jobs called before that were replayed (list of task ids, as Pending).
func (k Keys) Replays() string { return k.own + "replays" }

// Due is the queue's line of jobs never called that precede those of Pending: their time has come, or they were pulled and
// put back (list of task ids, as Pending).
func (k Keys) Due() string { return k.own + "due" }

// Lines is the four lists of the queue: two of jobs never called, the first before the second, retries and replays. The
// next job of each is at its right end; dequeue.lua says in which order they take turns.
func (k Keys) Lines() []string { return []string{k.Due(), k.Pending(), k.Retries(), k.Replays()} }

// First is the queue's line of the jobs of one class never called, except for the default class, whose jobs are in Due and
// Pending (list of task ids, as Pending).
func (k Keys) First(class string) string { return k.own + "first:" + class }

// Classes is the classes, except for the default one, that ever had jobs in the queue (hash: class, what dequeue.lua stores
// for its floor; # counts the jobs pulled).
func (k Keys) Classes() string { return k.own + "classes" }

// Lanes is the state of all lanes of a gateway together (hash; fields, and the names of the lanes' other keys, in
// internal/bucket/lanes.lua).
func (k Keys) Lanes() string { return k.own + "lanes" }

// Overrides is what was set at run time for lanes and routes (hash; see internal/bucket/override.lua).
func (k Keys) Overrides() string { return k.own + "overrides" }

// The kinds of Overrides.
const (
	OfLane  = "lane"
	OfRoute = "route"
)

// Acted is the latest act on a lane or route (hash; expires when no earlier act can arrive any more).
func (k Keys) Acted(kind, name string) string { return k.own + "acted:" + kind + ":" + name }

// Lane is the state of one lane (packed: internal/bucket/lanes.lua).
func (k Keys) Lane(lane string) string { return k.own + "lane:" + lane }

// HoldOfRoute is the hold of one route (hash, as Hold; its times are not affected if Redis's clock is set back).
func (k Keys) HoldOfRoute(route string) string { return k.Hold() + ":r:" + route }

// HoldOfLane is the same for a lane.
func (k Keys) HoldOfLane(lane string) string { return k.Hold() + ":l:" + lane }

// FlightOfRoute is the leases of a route's calls in flight, if their number has a cap (sorted set, as Flight).
func (k Keys) FlightOfRoute(route string) string { return k.Flight() + ":r:" + route }

// FlightOfLane is the same for a lane.
func (k Keys) FlightOfLane(lane string) string { return k.Flight() + ":l:" + lane }

// Throttled is the lanes with jobs that may not be called yet (sorted set: lane, when to check it again in µs).
func (k Keys) Throttled() string { return k.own + "throttled" }

// Ready is the lanes that may be called for jobs of a flow, CLASS:ROUTE (sorted set: lane, its place in turn).
func (k Keys) Ready(flow string) string { return k.own + "ready:" + flow }

// FlowLines are the lists of tasks of a flow in a lane, like Lines for the queue (lists of task ids, as Pending). Class and
// route are empty for the default ones.
func (k Keys) FlowLines(class, route, lane string) (lines []string) {
	for _, line := range []string{"due", "pending", "retries", "replays"} {
		lines = append(lines, k.own+"flow:"+class+":"+route+":"+line+":"+lane)
	}
	return lines
}

// Costs is the costs of queued tasks that cost more than 1 (hash: task id, cost), so that the pacer knows what comes next.
func (k Keys) Costs() string { return k.own + "costs" }

// Open is the open attempts (sorted set: job id, deadline in µs).
func (k Keys) Open() string { return k.own + "open" }

// Counters is the gateway's totals (hash: accepted, done, discarded).
func (k Keys) Counters() string { return k.own + "counters" }

// Parked is the jobs parked for one reason (sorted set: job id, time of parking in µs, unique within the gateway).
func (k Keys) Parked(reason string) string { return k.own + "parked:" + reason }

// AllParked is Parked of every reason, in the order of job.Reasons.
func (k Keys) AllParked() []string {
	keys := make([]string, 0, len(job.Reasons()))
	for _, r := range job.Reasons() {
		keys = append(keys, k.Parked(string(r)))
	}
	return keys
}

// ParkedBatch is the part of Parked for one batch (sorted set; maintained and named by books.lua).
func (k Keys) ParkedBatch(reason, batch string) string { return k.Parked(reason) + ":b:" + batch }

// ParkedFlows is the flows, CLASS:ROUTE:LANE, with jobs parked as rejected, now or before (sorted set: flow, its turn; see
// books.lua, which makes this name and the next two).
func (k Keys) ParkedFlows() string { return k.own + "parked:flows" }

// Unfit is the part of Parked for reason rejected that costs more than admission can ever grant (sorted set).
func (k Keys) Unfit() string { return k.Parked("rejected") + ":unfit" }

// Again is the jobs due for automatic replay (sorted set: job id, earliest time in µs; see books.lua).
func (k Keys) Again() string { return k.own + "again" }

// Rate is the calls of the last two minutes (hash: number of a 5 s bucket, calls).
func (k Keys) Rate() string { return k.own + "rate" }

// Hours is the calls of the last 24 hours and the current one (hash: "HOUR STATUS VERDICT", calls; the hour counts from
// 1970). record.lua makes its name from Rate.
func (k Keys) Hours() string { return k.own + "hours" }

// Moments is how many jobs were scheduled for each time, and how many left before it (hash, by time in µs), to keep their order.
func (k Keys) Moments() string { return k.own + "moments" }

// LiveLimits is the limits that an operator has set at run time (hash: version, limits; without limits, the configured ones
// apply).
func (k Keys) LiveLimits() string { return k.own + "limits" }

// Alive is the age of the gateway's data (hash; fields in alive.lua).
func (k Keys) Alive() string { return k.own + "alive" }

// Slow is the dispatchers that are too slow for their limits (hash; fields in internal/ledger/pulse.lua; expires a minute
// after the last report).
func (k Keys) Slow() string { return k.own + "slow" }

// Trail is the audit trail (list of JSON).
func (k Keys) Trail() string { return k.own + "trail" }

// Journal is the hash chain of the audit trail (list of JSON; internal/deadletter/entry.go).
func (k Keys) Journal() string { return k.own + "journal" }

// Head is the end of the chain (number of links and entries, and the hash of the last link).
func (k Keys) Head() string { return k.own + "head" }

// Acts is how many jobs each unfinished act of the audit trail has affected (hash: its place in the trail, jobs).
func (k Keys) Acts() string { return k.own + "acts" }

// Batch is the totals of one batch (hash; fields in internal/record/books.lua, which also makes this name and the next three).
func (k Keys) Batch(name string) string { return k.own + "batch:" + name }

// BatchIDs is the ids of a batch's jobs in the order of acceptance (list).
func (k Keys) BatchIDs(name string) string { return k.own + "batch-ids:" + name }

// Batches is the names of the batches (sorted set: name, when its first job was accepted in µs).
func (k Keys) Batches() string { return k.own + "batches" }

// Braked is the batches that paused themselves and about which nobody has decided since (sorted set: name, since when in µs).
func (k Keys) Braked() string { return k.own + "braked" }

// Brakes is the money moved by the gateway's calls, for its brakes (hash; fields in internal/record/brakes.lua).
func (k Keys) Brakes() string { return k.own + "brakes" }

// Awaiting is the batches that await approval (sorted set: name, since when in µs).
func (k Keys) Awaiting() string { return k.own + "awaiting" }

// Requests is the acts that need approval (sorted set: id, until when it may be approved in µs; +inf: approved and being
// carried out).
func (k Keys) Requests() string { return k.own + "requests" }

// Request is one of them (hash; fields in internal/record/request.lua).
func (k Keys) Request(id string) string { return k.own + "request:" + id }

// Prints is the digests of payees and amounts of an approved batch (bytes: eight of a digest for each job).
func (k Keys) Prints(batch string) string { return k.own + "prints:" + batch }

// Shelving is pending work on batches (hash: name, pause, release, await, approve or resume; see books.lua and approval.lua).
func (k Keys) Shelving() string { return k.own + "shelving" }

// Outcomes is the outcomes of jobs stored for their readers (stream; its entries are described in internal/record/told.lua,
// which makes this name and the next).
func (k Keys) Outcomes() string { return k.own + "outcomes" }

// Retold is the outcomes while they are rewritten (stream; internal/record/retell.lua).
func (k Keys) Retold() string { return k.own + "outcomes:anew" }

// Feed is the state of the outcome feed and its readers (hash; fields in internal/record/told.lua and
// internal/feed/readers.lua).
func (k Keys) Feed() string { return k.own + "feed" }

// Money is the sums of parked jobs (hash; fields in internal/record/books.lua).
func (k Keys) Money() string { return k.own + "money" }

// Pending is asynq's list of waiting tasks: jobs never called, after those of Due.
func (k Keys) Pending() string { return k.asynq + "pending" }

// Paused exists while the queue is paused with asynq's own tools.
func (k Keys) Paused() string { return k.asynq + "paused" }

// Active is asynq's list of tasks that a server has pulled.
func (k Keys) Active() string { return k.asynq + "active" }

// Lease is asynq's sorted set of leases of active tasks, in seconds.
func (k Keys) Lease() string { return k.asynq + "lease" }

// AsynqRetry is asynq's own retry set. Only asynq's recoverer ever puts a task of Spillway's there.
func (k Keys) AsynqRetry() string { return k.asynq + "retry" }

// AsynqArchive is asynq's sorted set of tasks that it has given up. It never contains a task of Spillway's.
func (k Keys) AsynqArchive() string { return k.asynq + "archived" }

// AsynqScheduled is asynq's sorted set of tasks for later. It never contains a task of Spillway's.
func (k Keys) AsynqScheduled() string { return k.asynq + "scheduled" }

// AsynqCompleted is asynq's sorted set of finished tasks. It never contains a task of Spillway's.
func (k Keys) AsynqCompleted() string { return k.asynq + "completed" }

// AsynqSets are asynq's own sorted sets, in which no task of Spillway's belongs: AsynqRetry, AsynqArchive, AsynqScheduled
// and AsynqCompleted.
func (k Keys) AsynqSets() []string {
	return []string{k.AsynqRetry(), k.AsynqArchive(), k.AsynqScheduled(), k.AsynqCompleted()}
}

// Mend is the lock of the process that scans all records for what is out of place; it expires.
func (k Keys) Mend() string { return k.own + "mend" }

// Erase is the lock of the process that scans for jobs to erase; it expires.
func (k Keys) Erase() string { return k.own + "erase" }

// Task is asynq's hash of one task.
func (k Keys) Task(taskID string) string { return k.asynq + "t:" + taskID }

// TaskEnd is what the end of a task needs, in the order of task_end (record.lua): the last keys and arguments of a script
// that ends a task together with its attempt.
type TaskEnd struct {
	Keys  []string // active, lease, task, and asynq's counts of processed tasks, daily and total
	Task  string   // its id
	Until int64    // when the daily count may expire (Unix seconds)
}

// dayKept is how long asynq keeps daily counts.
const dayKept = 90 * 24 * time.Hour

// TaskEnd returns them for a task that ends now.
func (k Keys) TaskEnd(taskID string, now time.Time) TaskEnd {
	processed := k.asynq + "processed"
	return TaskEnd{Keys: []string{k.Active(), k.Lease(), k.Task(taskID), processed + ":" + now.UTC().Format(time.DateOnly), processed},
		Task: taskID, Until: now.Add(dayKept).Unix()}
}

// TaskPrefix is the prefix of Task.
func (k Keys) TaskPrefix() string { return k.asynq + "t:" }

// Receipt is the reply to the last offer in one sequence (string; expires when no caller can need it any more).
func (k Keys) Receipt(sequence string) string { return k.own + "receipt:" + sequence }

// claimTags is the number of hash tags of claims on ids, so that one script can claim several ids while a cluster spreads them.
const claimTags = 16

// Claim returns the key of the claim on an id for one gateway, while it is admitted there and no other gateway may (hash:
// gateway, and a field for each offer that claims it). Claims with the same tag can share a script.
func Claim(id string) (key, tag string) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	tag = strconv.Itoa(int(h.Sum32() % claimTags))
	return "spillway:claim:{" + tag + "}:" + id, tag
}

// Wake is the channel on which a gateway's name is published when a job becomes due. It has no hash tag: one subscription
// serves all gateways.
const Wake = "spillway:wake"
