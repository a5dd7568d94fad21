package record

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

// Place is where a job of a batch is: a state and, if parked, the reason.
type Place struct {
	State  job.State
	Reason job.Reason // only with job.Parked
}

// Field returns the place's field name in Redis: the state, or parked:REASON.
func (p Place) Field() string {
	if p.State == job.Parked {
		return string(job.Parked) + ":" + string(p.Reason)
	}
	return string(p.State)
}

func placeOf(text string) Place {
	state, reason, _ := strings.Cut(text, ":")
	return Place{job.State(state), job.Reason(reason)}
}

// Batch is the totals of one batch at one gateway, all read at one moment. Places without jobs are left out.
type Batch struct {
	Places map[Place]job.Totals
	// Paused is since when the batch is paused; zero if it is not.
	Paused time.Time
	// Cancelled is since when the batch is cancelled and its new jobs are parked; zero if it is not. A
	// cancelled batch is not paused.
	Cancelled time.Time
	Why       string // reason of the pause or cancel
	Who       string // who paused or cancelled it
	// Braked says that the batch paused itself, and nobody has decided since how to continue.
	Braked bool
	Canary Canary
	Awaits Awaits
}

// Canary is the first jobs of a batch, which are sent before the rest.
type Canary struct {
	Jobs int64 // how many; 0: none
	Done int64
	// Waits says that the rest waits: the first jobs are not all done, or the rest is being admitted.
	Waits bool
}

// Sum adds up the places for which want returns true.
func (b Batch) Sum(want func(Place) bool) (s job.Totals) {
	for p, one := range b.Places {
		if want(p) {
			s.Add(one)
		}
	}
	return s
}

// ParseBatch parses totals as books.lua writes them. The error names a field that should contain a number and
// does not.
func ParseBatch(h map[string]string) (Batch, error) {
	b := Batch{Places: map[Place]job.Totals{}, Why: h["why"], Who: h["who"]}
	b.Awaits = awaits(h)
	for field, value := range h {
		if strings.HasPrefix(field, broughtIn) {
			continue
		}
		kind, rest, ok := strings.Cut(field, ":")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return Batch{}, fmt.Errorf("the field %s holds no number", field)
		}
		if n != 0 {
			b.enter(kind, rest, n)
		}
	}
	b.Braked = h["braked"] != ""
	b.Canary.Jobs, _ = strconv.ParseInt(h["canary"], 10, 64)
	b.Canary.Done, _ = strconv.ParseInt(h["canary_done"], 10, 64)
	b.Canary.Waits = h["ahead"] != ""
	if us, err := strconv.ParseInt(h["paused"], 10, 64); err == nil {
		b.Paused = Moment(us)
	}
	if us, err := strconv.ParseInt(h["cancelled"], 10, 64); err == nil {
		b.Cancelled = Moment(us)
	}
	for p, s := range b.Places {
		for currency, minor := range s.Amount {
			if minor.Sign() == 0 {
				delete(s.Amount, currency)
			}
		}
		if s.Jobs == 0 && s.NoAmount == 0 && len(s.Amount) == 0 {
			delete(b.Places, p)
		}
	}
	return b, nil
}

// highMoney is the value of one unit in a field M.
var highMoney = big.NewInt(1_000_000_000)

func (b Batch) enter(kind, rest string, n int64) {
	place, currency := rest, ""
	if at := strings.LastIndexByte(rest, ':'); kind == "m" || kind == "M" {
		place, currency = rest[:at], rest[at+1:]
	}
	s := b.Places[placeOf(place)]
	switch kind {
	case "n":
		s.Jobs = n
	case "u":
		s.NoAmount = n
	case "m":
		s.Amount.Add(job.Money{Minor: big.NewInt(n), Currency: currency})
	case "M":
		s.Amount.Add(job.Money{Minor: new(big.Int).Mul(big.NewInt(n), highMoney), Currency: currency})
	}
	b.Places[placeOf(place)] = s
}

// LayOut writes the totals of a place into fields, as books.lua does.
func LayOut(s job.Totals, p Place, to map[string]int64) {
	place := p.Field()
	to["n:"+place] = s.Jobs
	to["u:"+place] = s.NoAmount
	for currency, minor := range s.Amount {
		high, low := new(big.Int).QuoRem(minor, highMoney, new(big.Int))
		to["m:"+place+":"+currency], to["M:"+place+":"+currency] = low.Int64(), high.Int64()
	}
}

// Standing is a snapshot of one gateway's queue and counts, all read at one moment.
type Standing struct {
	Now       time.Time // on Redis's clock
	Queued    int64     // waiting in the queue, due now
	InFlight  int64     // pulled and not finished, even if the worker has died
	Scheduled int64     // waiting for their time
	Retrying  int64     // waiting for a back-off to end
	Pending   int64     // called; the outcome is being looked up
	Done      int64     // a counter that outlives the dedupe window
	Accepted  int64     // every job ever admitted
	Discarded int64
	Parked    map[job.Reason]int64     // only reasons with jobs
	Oldest    map[job.Reason]time.Time // when the first job of each was parked
	// ParkedBytes is the total stored size of the parked jobs' payloads.
	ParkedBytes int64
	Rate        float64 // calls a second, over the last minute, or since the first call if that is shorter
	// Anew says that most of the calls in Rate are from the last 5 to 10 s: calls have just started, or started
	// again.
	Anew bool
	// Steady is calls a second without the start-up phase: over the whole 5 s spans with calls, up to now. 0 if
	// there is none yet.
	Steady float64
}

// Missing returns how many more jobs were accepted than are counted in a state. It is negative while the queue
// still contains tasks of jobs that have moved on, or foreign tasks.
func (s Standing) Missing() int64 {
	found := s.Queued + s.InFlight + s.Scheduled + s.Retrying + s.Pending + s.Done + s.Discarded
	for _, n := range s.Parked {
		found += n
	}
	return s.Accepted - found
}
