package chaos

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// event is one fault, or one act of a person.
type event struct {
	at    time.Duration // from the start of the faults
	what  string
	lasts time.Duration
	pick  uint64 // chooses among several: which dispatcher, how much, how many
}

// kind is one sort of event in a lane.
type kind struct {
	what        string
	weight      int
	least, most time.Duration // how long it lasts
}

// lane is a sequence of events, one after the other. Events of different lanes may overlap.
type lane struct {
	name  string
	every time.Duration // mean pause between two of them
	kinds []kind
}

// schedule draws the events of a lane. The same seed gives the same events, whatever the other lanes have.
func schedule(seed uint64, l lane, length time.Duration) []event {
	name := uint64(14695981039346656037) // FNV-1a: each lane has its own chance
	for _, c := range []byte(l.name) {
		name = (name ^ uint64(c)) * 1099511628211
	}
	r := rand.New(rand.NewPCG(seed, name))
	var events []event
	for at := l.pause(r); at < length; at += l.pause(r) {
		e := l.draw(r)
		e.at, e.lasts = at, min(e.lasts, length-at)
		events = append(events, e)
		at += e.lasts
	}
	return events
}

func (l lane) pause(r *rand.Rand) time.Duration {
	d := time.Duration(r.ExpFloat64() * float64(l.every))
	return min(max(d, 100*time.Millisecond), 3*l.every)
}

func (l lane) draw(r *rand.Rand) event {
	sum := 0
	for _, k := range l.kinds {
		sum += k.weight
	}
	n := r.IntN(sum)
	for _, k := range l.kinds {
		if n < k.weight {
			return event{what: k.what, lasts: k.least + time.Duration(r.Float64()*float64(k.most-k.least)), pick: r.Uint64()}
		}
		n -= k.weight
	}
	panic("a lane's weights don't add up")
}

// between turns an event's pick into a duration.
func (e event) between(least, most time.Duration) time.Duration {
	return least + time.Duration(e.pick%1000)*(most-least)/1000
}

func (e event) String() string {
	text := e.what
	if e.lasts > 0 {
		text += fmt.Sprintf(" for %v", e.lasts.Round(10*time.Millisecond))
	}
	return text
}

const (
	ms  = time.Millisecond
	sec = time.Second
)

// The lanes: what breaks, how often, and for how long.
var (
	dispatcherLane = lane{"dispatchers", 3 * sec, []kind{
		{"kill -9, another one starts after", 5, 0, 3 * sec},
		{"stalled", 4, 200 * ms, 8 * sec},
		{"stopped and started again", 2, 0, 0},
		{"out of descriptors", 3, 1 * sec, 6 * sec},
	}}
	redisLane = lane{"redis", 7 * sec, []kind{
		{"kill -9, back after", 3, 0, 2 * sec},
		{"stalled", 3, 200 * ms, 8 * sec},
		{"scripts flushed", 2, 0, 0},
	}}
	redisLineLane = lane{"line to redis", 5 * sec, []kind{
		{"slow", 3, 1 * sec, 4 * sec},
		{"cut", 4, 0, 0},
		{"half open", 2, 300 * ms, 5 * sec},
		{"answers lost", 3, 20 * ms, 300 * ms},
		{"refused", 2, 100 * ms, 3 * sec},
	}}
	lineKinds = []kind{
		{"slow", 3, 1 * sec, 4 * sec},
		{"cut", 3, 0, 0},
		{"half open", 2, 300 * ms, 4 * sec},
		{"answers lost", 3, 50 * ms, 1 * sec},
		{"refused", 2, 300 * ms, 3 * sec},
	}
	providerKinds = []kind{
		{"down, 503", 3, 500 * ms, 4 * sec},
		{"fails, 500", 3, 500 * ms, 3 * sec},
		{"saves 500s", 2, 500 * ms, 3 * sec},
		{"bars a job, 403", 2, 500 * ms, 4 * sec},
		{"charges and hangs", 2, 500 * ms, 3 * sec},
		{"allows a fifth, 429", 2, 500 * ms, 2 * sec},
		{"declines, 402", 3, 500 * ms, 3 * sec},
	}
	peopleLane = lane{"people", 4 * sec, []kind{
		{"limit set", 3, 1 * sec, 5 * sec},
		{"pause", 2, 300 * ms, 3 * sec},
		{"replay", 4, 0, 0},
		{"resolve", 4, 0, 0},
		{"ask", 3, 0, 0},
		{"discard", 1, 0, 0},
	}}
	laneLane = lane{"lanes", 4 * sec, []kind{
		{"lane set", 3, 1 * sec, 5 * sec},
		{"lane pause", 2, 300 * ms, 3 * sec},
	}}
)

func TestASeedGivesTheSameSchedule(t *testing.T) {
	t.Parallel()
	a, b := schedule(7, redisLane, time.Hour), schedule(7, redisLane, time.Hour)
	if !reflect.DeepEqual(a, b) || len(a) < 100 {
		t.Fatalf("%d and %d events, and not the same", len(a), len(b))
	}
	if reflect.DeepEqual(a, schedule(8, redisLane, time.Hour)) {
		t.Error("another seed gives the same schedule")
	}
	for i, e := range a {
		if e.at+e.lasts > time.Hour || i > 0 && e.at < a[i-1].at+a[i-1].lasts {
			t.Errorf("event %d, %v at %v, overlaps the one before or the end", i, e, e.at)
		}
	}
}
