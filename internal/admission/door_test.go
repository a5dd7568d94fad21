package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/clock"
	"spillway/internal/job"
)

var errAway = errors.New("LOADING Redis is loading the dataset in memory")

// books is books with room for some jobs, which are unavailable for some tries.
type books struct {
	room, away int
	seen       []string
	modes      []string
	grow       int // room that appears with each try
	tickets    []job.Ticket
}

func (b *books) Offer(jobs []job.Newcomer) (job.Offer, error) {
	return func(_ context.Context, ticket job.Ticket, mode string) ([]job.Admittance, job.Room, error) {
		return b.put(ticket, jobs, mode)
	}, nil
}

func (b *books) put(ticket job.Ticket, jobs []job.Newcomer, mode string) ([]job.Admittance, job.Room, error) {
	b.tickets = append(b.tickets, ticket)
	if b.away > 0 {
		b.away--
		return nil, job.Room{}, errAway
	}
	b.modes = append(b.modes, mode)
	answers := make([]job.Admittance, len(jobs))
	for i, n := range jobs {
		switch {
		case n.Digest == "conflict":
			answers[i] = job.Conflict
		case b.room > 0:
			b.room--
			b.seen = append(b.seen, n.Job.ID)
			answers[i] = job.Enqueued
		case mode == "park":
			answers[i] = job.ParkedNow
		default:
			answers[i] = job.Full
		}
	}
	b.room += b.grow
	return answers, job.Room{Retry: time.Millisecond}, nil
}

// instant is a clock whose waits end at once and advance its time.
type instant struct {
	clock.Real
	now time.Time
}

func (c *instant) Now() time.Time { return c.now }
func (c *instant) After(d time.Duration) <-chan time.Time {
	c.now = c.now.Add(d)
	ch := make(chan time.Time, 1)
	ch <- c.now
	return ch
}

func door(b *books, patience time.Duration) *admission.Door {
	return admission.New(admission.Config{
		Gateways: map[string]admission.Gateway{"g": {Books: b, MaxCost: 5}},
		Digest:   func(p json.RawMessage) string { return string(p) },
		Away:     func(err error) bool { return errors.Is(err, errAway) },
		Patience: patience, Clock: &instant{now: time.Unix(1, 0)},
	})
}

func jobs(ids ...string) []job.Job {
	var all []job.Job
	for _, id := range ids {
		all = append(all, job.Job{ID: id, Cost: 1})
	}
	return all
}

func outcomes(answers []admission.Answer) []job.Admittance {
	var all []job.Admittance
	for _, a := range answers {
		all = append(all, a.Outcome)
	}
	return all
}

func TestEachModeDoesWhatItSays(t *testing.T) {
	t.Parallel()
	for mode, want := range map[admission.Mode][]job.Admittance{
		admission.Park: {job.Enqueued, job.ParkedNow, job.ParkedNow},
		admission.Fail: {job.Enqueued, job.Full, job.Full},
		admission.Wait: {job.Enqueued, job.Enqueued, job.Enqueued},
	} {
		b := &books{room: 1, grow: 1}
		answers, err := door(b, 0).Admit(t.Context(), "g", jobs("a", "b", "c"), mode)
		if err != nil || !slices.Equal(outcomes(answers), want) {
			t.Errorf("%s: %v, %v; want %v", mode, outcomes(answers), err, want)
		}
		if mode == admission.Wait && !slices.Equal(b.seen, []string{"a", "b", "c"}) {
			t.Errorf("waiting changed the order: %v", b.seen)
		}
	}
}

func TestABadJobStopsNoGoodOne(t *testing.T) {
	t.Parallel()
	in := jobs("good", "has space", "dear", "")
	in[2].Cost = 6
	in = append(in, job.Job{ID: "known", Payload: json.RawMessage("conflict")})
	answers, err := door(&books{room: 9}, 0).Admit(t.Context(), "g", in, admission.Park)
	if err != nil || answers[0].Outcome != job.Enqueued || answers[0].Err != nil {
		t.Fatalf("%+v, %v", answers[0], err)
	}
	for i, words := range []string{1: "space", 2: "can ever grant (5)", 3: "empty", 4: "another payload"} {
		if i > 0 && (answers[i].Err == nil || !strings.Contains(answers[i].Err.Error(), words)) {
			t.Errorf("job %d: %v, want a word on %q", i, answers[i].Err, words)
		}
	}
}

func TestRedisAwayIsWaitedForUntilPatienceEnds(t *testing.T) {
	t.Parallel()
	answers, err := door(&books{room: 1, away: 5}, 30*time.Second).Admit(t.Context(), "g", jobs("a"), admission.Park)
	if err != nil || answers[0].Outcome != job.Enqueued {
		t.Errorf("back in time: %+v, %v", answers, err)
	}
	_, err = door(&books{room: 1, away: 1000}, 30*time.Second).Admit(t.Context(), "g", jobs("a"), admission.Park)
	if job.CodeOf(err) != job.CodeUnavailable || !strings.Contains(err.(*job.Error).Hint, "safe") {
		t.Errorf("away for good: %v", err)
	}
}

// The books recognise a repeated offer by its ticket. The ticket must stay the same while the answer is unknown, and must not be used again.
func TestAnOfferKeepsItsTicketUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	b := &books{room: 1, away: 3, grow: 1}
	d := door(b, 30*time.Second)
	if _, err := d.Admit(t.Context(), "g", jobs("a", "b"), admission.Wait); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Admit(t.Context(), "g", jobs("c"), admission.Park); err != nil {
		t.Fatal(err)
	}
	var numbers []int64
	for _, ticket := range b.tickets {
		numbers = append(numbers, ticket.Number)
		if ticket.Sequence == "" || ticket.Sequence != b.tickets[0].Sequence {
			t.Errorf("one caller after the other, and lanes %v", b.tickets)
		}
	}
	if !slices.Equal(numbers, []int64{1, 1, 1, 1, 2, 3}) {
		t.Errorf("three tries without an answer, a wait for room, another chunk: numbers %v", numbers)
	}
	other := &books{room: 1}
	if _, err := door(other, 0).Admit(t.Context(), "g", jobs("a"), admission.Park); err != nil || other.tickets[0].Sequence == b.tickets[0].Sequence {
		t.Errorf("another door has the lane %v, %v", other.tickets, err)
	}
}

// meeting is books that answer no offer before all have arrived.
type meeting struct {
	all     sync.WaitGroup
	mu      sync.Mutex
	tickets map[job.Ticket]int
}

func (m *meeting) Offer(jobs []job.Newcomer) (job.Offer, error) {
	return func(_ context.Context, ticket job.Ticket, _ string) ([]job.Admittance, job.Room, error) {
		m.mu.Lock()
		m.tickets[ticket]++
		m.mu.Unlock()
		m.all.Done()
		m.all.Wait()
		return make([]job.Admittance, len(jobs)), job.Room{}, nil
	}, nil
}

func TestCallersAtTheSameTimeHaveLanesOfTheirOwn(t *testing.T) {
	t.Parallel()
	m := &meeting{tickets: map[job.Ticket]int{}}
	d := admission.New(admission.Config{Gateways: map[string]admission.Gateway{"g": {Books: m, MaxCost: 5}},
		Digest: func(json.RawMessage) string { return "" }, Away: func(error) bool { return false }, Clock: clock.Real{}})
	for round := 1; round <= 2; round++ {
		m.all.Add(10)
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { _, _ = d.Admit(t.Context(), "g", jobs("a"), admission.Park) })
		}
		callers.Wait()
		if len(m.tickets) != 10*round {
			t.Errorf("round %d: %d tickets, want another ten: %v", round, len(m.tickets), m.tickets)
		}
	}
	lanes := map[string]bool{}
	for ticket := range m.tickets {
		lanes[ticket.Sequence] = true
	}
	if len(lanes) != 10 {
		t.Errorf("%d lanes for ten callers at a time: the books keep an answer for each", len(lanes))
	}
}

func TestAnUnknownGatewayHasItsCode(t *testing.T) {
	t.Parallel()
	if _, err := door(&books{}, 0).Admit(t.Context(), "other", jobs("a"), admission.Park); job.CodeOf(err) != job.CodeNotFound {
		t.Errorf("got %v", err)
	}
}

func TestInterruptedWaitingClaimsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := &books{room: 1}
	d := admission.New(admission.Config{Gateways: map[string]admission.Gateway{"g": {Books: b, MaxCost: 5}},
		Digest: func(json.RawMessage) string { cancel(); return "" }, Away: func(error) bool { return false }, Clock: clock.Real{}})
	answers, err := d.Admit(ctx, "g", jobs("a", "b"), admission.Wait)
	if !errors.Is(err, context.Canceled) || answers[0].Outcome != job.Enqueued || answers[1].Outcome != "" {
		t.Errorf("%+v, %v", answers, err)
	}
}
