// Package audit checks that every job of a gateway is where its record says, and that all totals agree with the
// records. It repairs what does not, after foreign writes, evictions or lost writes.
package audit

import (
	"context"
	"embed"
	"fmt"
	"iter"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/clock"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Books are the records of one gateway's jobs, as the ledger maintains them.
type Books interface {
	// Look returns the gateway's totals, all read at one moment.
	Look(ctx context.Context) (record.Standing, error)
	// BatchJobs yields the jobs of a batch. Jobs whose records are gone have no state.
	BatchJobs(ctx context.Context, name string) iter.Seq2[job.Record, error]
	// Task returns the id, the key and the message of a job's task for one generation. Only repairs need it.
	Task(id string, generation int64) (taskID, key string, msg []byte, err error)
	// LaneSets returns the keys of the sets of lanes with jobs; nil if the gateway has no lanes.
	LaneSets() []string
}

// Gateway is a gateway whose data is checked and repaired. It is safe for concurrent use.
type Gateway struct {
	c     redis.UniversalClient
	name  string
	keys  redisdb.Keys
	books Books
	// NowMicros replaces Redis's clock. For tests; nil means Redis's own.
	NowMicros redisdb.Clock
}

// New returns the gateway of that name, with its books.
func New(c redis.UniversalClient, gateway string, books Books) *Gateway {
	return &Gateway{c: c, name: gateway, keys: redisdb.NewKeys(gateway), books: books}
}

// Params configure an audit.
type Params struct {
	// Most is how many findings of each kind, faults and notes, are kept; others are only counted. Zero keeps none.
	Most int
	// Indexed is how many tasks of the queue are remembered at once, in 8 bytes each; a longer queue takes several
	// rounds. Zero means 4,000,000.
	Indexed int64
	// Lanes is how many lanes one script counts. More are counted a few at a time, which fails while jobs come and
	// go. Zero means 5,000.
	Lanes int
	// Patience is how long to wait before what looks wrong at the end is checked again, since it may be repaired
	// meanwhile. Zero means 1 s; negative, no time.
	Patience time.Duration
	// Repair rebuilds the totals of batches that differ from their jobs' records, and what brakes count. It also
	// puts lanes, and jobs that wait for room, in the places where they get their turn. Nothing else is changed.
	Repair bool
	// Progress is called from time to time with the number of records read. Nil: not called.
	Progress func(records int64)
}

// Report is the result of auditing one gateway.
type Report struct {
	record.Standing          // at the end
	Records         int64    // records read, including those of finished jobs that are still known
	Faults          Findings // what must not be
	Notes           Findings // what is remarkable, but in order
}

// Findings are the findings kept, and their total number.
type Findings struct {
	Total int64
	List  []Finding
}

func (f *Findings) add(one Finding, most int) {
	f.Total++
	if len(f.List) < most {
		f.List = append(f.List, one)
	}
}

const (
	mostSuspects = 1000 // checked at once; with more, the survey pauses
	secondLook   = time.Second
	// sumTries is how often the totals are read before they count as wrong, because tasks of jobs that have moved
	// on come and go.
	sumTries = 3
)

// auditor is one audit in progress.
type auditor struct {
	g        *Gateway
	p        Params
	report   Report
	finished map[job.State]int64 // records of done or discarded jobs
	suspects []Finding
	known    map[Finding]bool // faults kept
	lost     bool             // a lane is in the wrong place, so its jobs can't be counted
}

// Audit checks that every job ever accepted is in exactly one place, and that the totals add up. Others may use the
// gateway meanwhile: what looks wrong is checked again, job by job, before it counts as a fault.
func (g *Gateway) Audit(ctx context.Context, p Params) (Report, error) {
	a := &auditor{g: g, p: p, finished: map[job.State]int64{}, known: map[Finding]bool{}}
	if p.Repair {
		if _, err := g.relist(ctx, true); err != nil { // otherwise each job of these lanes is searched for
			return a.report, fmt.Errorf("check the lanes of %s: %w", g.name, err)
		}
	}
	s := &survey{g: g, indexed: p.Indexed, seen: a.seen, found: func(f Finding) error { return a.found(ctx, f) }}
	if err := s.run(ctx); err != nil {
		return a.report, err
	}
	if err := a.judgeLast(ctx); err != nil {
		return a.report, err
	}
	batches := &batchCheck{g: g, repair: p.Repair, found: a.fault}
	if err := batches.run(ctx); err != nil {
		return a.report, err
	}
	lanes := &laneCheck{g: g, repair: p.Repair, most: p.Lanes, found: a.fault, lost: func() bool { return a.lost }}
	if err := lanes.run(ctx); err != nil {
		return a.report, err
	}
	brakes := &brakeCheck{g: g, repair: p.Repair, found: a.fault}
	if err := brakes.run(ctx); err != nil {
		return a.report, err
	}
	if err := a.told(ctx); err != nil {
		return a.report, err
	}
	return a.report, a.sum(ctx, s)
}

func (a *auditor) seen(state job.State) {
	a.report.Records++
	if state == job.Done || state == job.Discarded {
		a.finished[state]++
	}
	if a.p.Progress != nil && a.report.Records%recordStep == 0 {
		a.p.Progress(a.report.Records)
	}
}

func (a *auditor) found(ctx context.Context, f Finding) error {
	if !f.Fault() {
		a.report.Notes.add(f, a.p.Most)
		return nil
	}
	a.suspects = append(a.suspects, f)
	if len(a.suspects) < mostSuspects {
		return nil
	}
	return a.judge(ctx)
}

func (a *auditor) judgeLast(ctx context.Context) error {
	if len(a.suspects) == 0 {
		return nil
	}
	patience := a.p.Patience
	if patience == 0 {
		patience = secondLook
	}
	if err := clock.Wait(ctx, patience); err != nil {
		return err
	}
	return a.judge(ctx)
}

func (a *auditor) judge(ctx context.Context) error {
	for _, f := range a.suspects {
		if a.known[f] {
			continue
		}
		still, err := a.g.still(ctx, f)
		if err != nil {
			return err
		}
		if a.p.Repair {
			if did, err := a.g.mendPlace(ctx, still); err != nil {
				return err
			} else if did {
				if still, err = a.g.still(ctx, f); err != nil {
					return err
				}
			}
		}
		if still.What != "" {
			a.fault(still)
		}
	}
	a.suspects = a.suspects[:0]
	return nil
}

func (a *auditor) fault(f Finding) {
	if !f.Fault() {
		a.report.Notes.add(f, a.p.Most)
		return
	}
	a.lost = a.lost || f.What == NoLane || f.What == LaneSets
	if a.known[f] {
		return
	}
	a.report.Faults.add(f, a.p.Most)
	if len(a.known) < a.p.Most {
		a.known[f] = true
	}
}

// still checks one finding again with a single script, and returns what is wrong now, if anything.
func (g *Gateway) still(ctx context.Context, f Finding) (Finding, error) {
	if f.What == NoRecord {
		here, err := g.stands(ctx, f)
		if err != nil || !here {
			return Finding{}, err
		}
		return f, nil
	}
	found, err := g.places(ctx, []string{f.ID}, true)
	if err != nil || len(found) == 0 {
		return Finding{}, err
	}
	return found[0].Finding, nil
}

// stands reports whether something without a record is still as it was found.
func (g *Gateway) stands(ctx context.Context, f Finding) (bool, error) {
	for _, set := range g.sets() {
		if set.name == f.Where {
			lost, err := g.ghosts(ctx, set.key, []string{f.ID})
			return len(lost) > 0, err
		}
	}
	n, err := g.c.Exists(ctx, g.keys.Job(f.ID)).Result()
	return n == 0, err
}

// sum compares the totals with each other, all read at one moment. What is found beyond the accepted jobs must be the
// stale tasks in the queue: no more, and no fewer, as they would otherwise hide that jobs are missing. Only if there are
// other faults may it be fewer: such a task can be that of a job that was found to be wrong. Stale tasks come and go, so
// they are counted just before that moment and just after it.
func (a *auditor) sum(ctx context.Context, s *survey) (err error) {
	for try := range sumTries + 1 {
		before := s.papers // by the survey, which may have been long ago; then by the last try
		if a.report.Standing, err = patiently(ctx, a.g.books.Look); err != nil {
			return err
		}
		surplus := -a.report.Missing()
		if surplus == 0 && before == 0 {
			return a.remembered(ctx, s)
		}
		if err = s.count(ctx); err != nil {
			return err
		}
		least := min(before, s.papers)
		if a.report.Faults.Total > 0 {
			least = 0
		}
		if try > 0 && least <= surplus && surplus <= max(before, s.papers) {
			return a.remembered(ctx, s)
		}
	}
	a.fault(Finding{What: Totals, Text: a.totals(s.papers)})
	return a.remembered(ctx, s)
}

// totals says what does not add up.
func (a *auditor) totals(stale int64) string {
	text := fmt.Sprintf("accepted: %d, found: %d", a.report.Accepted, a.report.Accepted-a.report.Missing())
	if stale > 0 {
		text += fmt.Sprintf(" (stale tasks: %d)", stale)
	}
	return text
}

// remembered checks that no more finished jobs are known than were counted: records expire, counters don't.
func (a *auditor) remembered(ctx context.Context, s *survey) error {
	for state, counted := range map[job.State]int64{job.Done: a.report.Done, job.Discarded: a.report.Discarded} {
		if a.finished[state] <= counted {
			continue
		}
		found, err := s.distinct(ctx, state) // the first scan may have seen some of them twice
		if err != nil {
			return err
		}
		if found > counted {
			a.fault(Finding{What: Totals, Text: fmt.Sprintf("%d records say %s, the counter says %d", found, state, counted)})
		}
	}
	return nil
}

//go:embed *.lua
var files embed.FS

func lua(name string) string { return record.Text(files, name) }

var (
	recordsScript    = redisdb.NewScript(redisdb.NowLua, record.FlowLua, lua("records"))
	tasksScript      = redisdb.NewScript(redisdb.NowLua, lua("tasks"))
	membersScript    = redisdb.NewScript(redisdb.NowLua, lua("members"))
	parkedSumsScript = redisdb.NewScript(redisdb.NowLua, record.Lua, lua("parked_sums"))
	toldScript       = redisdb.NewScript(redisdb.NowLua, lua("told"))
	lanedScript      = redisdb.NewScript(redisdb.NowLua, lua("laned"))
	relistScript     = redisdb.NewScript(redisdb.NowLua, lua("relist"))
	relaneScript     = redisdb.NewScript(redisdb.NowLua, lua("relane"))
	recountScript    = redisdb.NewScript(lua("recount"))
	mendScript       = redisdb.NewScript(redisdb.NowLua, record.Lua, lua("mend"))
	rebookScript     = redisdb.NewScript(lua("rebook")).Replicated()
	reshelveScript   = redisdb.NewScript(record.Lua, lua("reshelve")).Replicated()
)

// toldEntries is how many of the latest entries of the outcome feed are compared with the records.
const toldEntries = 500

// told compares the latest outcomes of the feed, if there is one, with the records and with the feed's own count.
func (a *auditor) told(ctx context.Context) error {
	k := a.g.keys
	v, err := toldScript.Run(ctx, a.g.c, []string{k.Outcomes(), k.Feed()}, toldEntries, k.JobPrefix()).StringSlice()
	if err != nil {
		return err
	}
	if len(v) < 2 || len(v)%3 != 2 {
		return redisdb.BadReply("told.lua", v)
	}
	if v[0] != "" && v[0] != v[1] {
		a.fault(Finding{What: Outcomes, Text: fmt.Sprintf("the latest outcome that is kept is number %s, and the feed says that there were %q", v[0], v[1])})
	}
	for i := 2; i < len(v); i += 3 {
		a.fault(Finding{ID: v[i], What: Outcomes, Text: fmt.Sprintf("the outcome feed said last that it is %s, and its record says %s", v[i+1], v[i+2])})
	}
	return nil
}
