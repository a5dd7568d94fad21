package record

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

// Place is where a job of a batch stands: a state, and of parked jobs the reason.
type Place struct {
	State  job.State
	Reason job.Reason // only with job.Parked
}

// Field names the place as the books do: the state, or parked:REASON.
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

// Batch is one gateway's books of one batch, all of one moment. Places without jobs are left out.
type Batch struct {
	Places map[Place]job.Totals
	// Paused is since when nobody calls its jobs; zero if the batch is not paused.
	Paused time.Time
	// Cancelled is since when what comes of it is parked; zero if the batch is not cancelled. It is not paused then.
	Cancelled time.Time
	Why       string // it is paused or cancelled
	Who       string // paused or cancelled it
	// Braked says that it paused itself, and that nobody has decided since what is to become of it.
	Braked bool
	Canary Canary
	Awaits Awaits
}

// Canary is the first jobs of a batch, which go ahead of the rest.
type Canary struct {
	Jobs int64 // how many they are; 0: none go ahead
	Done int64
	// Waits says that the rest waits: they are not all done yet, or the rest is on its way in.
	Waits bool
}

// Sum adds up the places that want says.
func (b Batch) Sum(want func(Place) bool) (s job.Totals) {
	for p, one := range b.Places {
		if want(p) {
			s.Add(one)
		}
	}
	return s
}

// ParseBatch reads books as batch.lua lays them out. The error is a field that should hold a number, and does not.
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

// highMoney is what one unit of a field M stands for.
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

// LayOut writes the totals of a place into fields, as batch.lua does.
func LayOut(s job.Totals, p Place, to map[string]int64) {
	place := p.Field()
	to["n:"+place] = s.Jobs
	to["u:"+place] = s.NoAmount
	for currency, minor := range s.Amount {
		high, low := new(big.Int).QuoRem(minor, highMoney, new(big.Int))
		to["m:"+place+":"+currency], to["M:"+place+":"+currency] = low.Int64(), high.Int64()
	}
}

// Standing is one gateway at a glance, all of one moment.
type Standing struct {
	Now       time.Time // on Redis's clock
	Queued    int64     // waiting in the queue, due now
	InFlight  int64     // pulled and not finished, even if the worker has died
	Scheduled int64     // their time is to come
	Retrying  int64     // waiting out a back-off
	Pending   int64     // called, and their outcome is being asked for
	Done      int64     // a counter that survives the dedupe window
	Accepted  int64     // every job that was ever taken in
	Discarded int64
	Parked    map[job.Reason]int64     // only reasons with jobs
	Oldest    map[job.Reason]time.Time // when the first of those was parked
	// ParkedBytes is how long the parked jobs' payloads are together, as they are stored.
	ParkedBytes int64
	Rate        float64 // calls a second, over the last minute or since calls began, if that is less
	// Anew says that most of the calls that Rate counts are of the last 5 to 10 s: they have only just begun, or begun again.
	Anew bool
	// Steady is calls a second without the moment at which they began: over whole spans of 5 s, each with calls, up to now. 0 if there is none yet.
	Steady float64
}

// Missing is how many jobs were accepted beyond those that stand somewhere; negative if more stand somewhere than were accepted, as
// long as tasks of jobs that have moved on, or that are not ours, wait in the queue.
func (s Standing) Missing() int64 {
	found := s.Queued + s.InFlight + s.Scheduled + s.Retrying + s.Pending + s.Done + s.Discarded
	for _, n := range s.Parked {
		found += n
	}
	return s.Accepted - found
}
