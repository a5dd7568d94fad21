package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/clock"
	"spillway/internal/job"
)

// slow is books that carry out an offer when the test says so.
type slow struct {
	mu      sync.Mutex
	arrived chan job.Ticket
	answers map[int]chan error // for the n-th offer that comes
	came    int
	done    []string
}

func newSlow(answers int) *slow {
	s := &slow{arrived: make(chan job.Ticket, 10), answers: map[int]chan error{}}
	for i := range answers {
		s.answers[i] = make(chan error, 1)
	}
	return s
}

func (s *slow) Offer(jobs []job.Newcomer) (job.Offer, error) {
	return func(ctx context.Context, ticket job.Ticket, _ string) ([]job.Admittance, job.Room, error) {
		s.mu.Lock()
		answer := s.answers[s.came]
		s.came++
		s.mu.Unlock()
		s.arrived <- ticket
		select {
		case err := <-answer:
			if err != nil {
				return nil, job.Room{}, err
			}
		case <-ctx.Done():
			return nil, job.Room{}, ctx.Err()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done = append(s.done, jobs[0].Job.ID)
		return slices.Repeat([]job.Admittance{job.Enqueued}, len(jobs)), job.Room{}, nil
	}, nil
}

// next returns the ticket of the next offer.
func (s *slow) next(t *testing.T) job.Ticket {
	t.Helper()
	select {
	case ticket := <-s.arrived:
		return ticket
	case <-time.After(20 * time.Second):
		t.Fatal("no offer comes")
		return job.Ticket{}
	}
}

func lineOf(s *slow, other admission.Books) *admission.Line {
	return admission.New(admission.Config{Gateways: map[string]admission.Gateway{"g": {Books: s, MaxCost: 5}, "h": {Books: other, MaxCost: 5}},
		Digest: func(json.RawMessage) string { return "" }, Away: func(err error) bool { return errors.Is(err, errAway) },
		Patience: time.Minute, Clock: &instant{now: time.Unix(1, 0)}}).Line()
}

func told(t *testing.T, name string, offer *admission.Passage, want error) {
	t.Helper()
	answers, err := offer.Wait()
	if !errors.Is(err, want) || want == nil && (err != nil || answers[0].Outcome != job.Enqueued) {
		t.Errorf("%s: %+v, %v; want %v", name, answers, err, want)
	}
}

func TestAnOfferComesOnTheHeelsOfTheOneBefore(t *testing.T) {
	t.Parallel()
	s := newSlow(3)
	line := lineOf(s, &books{})
	defer line.Close()
	begin := func(id string) *admission.Passage {
		return line.Begin(t.Context(), "g", jobs(id), admission.Park)
	}
	a := begin("a")
	first := s.next(t)
	b := begin("b")
	second := s.next(t) // the first has no answer yet
	if first.Behind != (job.Place{}) || second.Behind != (job.Place{Sequence: first.Sequence, Number: first.Number}) || second.Sequence == first.Sequence {
		t.Errorf("the tickets are %+v and %+v", first, second)
	}
	s.answers[0] <- nil
	told(t, "a", a, nil)
	s.answers[1] <- nil
	told(t, "b", b, nil)
	c := begin("c")
	if third := s.next(t); third.Behind != (job.Place{}) || third.Sequence != first.Sequence || third.Number != first.Number+1 {
		t.Errorf("the third has the ticket %+v behind %+v, which has ended", third, second)
	}
	s.answers[2] <- nil
	told(t, "c", c, nil)
}

// An offer that was turned away or lost is repeated when the offer before it has ended. It then has to wait for no other offer.
func TestAnOfferThatOvertakesIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]error{"overtaken": errors.New("EARLY"), "lost": errAway} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSlow(3)
			line := lineOf(s, &books{})
			a := line.Begin(t.Context(), "g", jobs("a"), admission.Park)
			s.next(t)
			b := line.Begin(t.Context(), "g", jobs("b"), admission.Park)
			second := s.next(t)
			s.answers[1] <- fails
			select {
			case early := <-s.arrived:
				t.Fatalf("offered again as %+v before the first was answered", early)
			case <-time.After(50 * time.Millisecond):
			}
			s.answers[0] <- nil
			told(t, "a", a, nil)
			if again := s.next(t); again.Behind != (job.Place{}) || again.Sequence != second.Sequence || again.Number != second.Number {
				t.Errorf("offered again as %+v, at first as %+v", again, second)
			}
			s.answers[2] <- nil
			told(t, "b", b, nil)
			if fmt.Sprint(s.done) != "[a b]" {
				t.Errorf("carried out: %v", s.done)
			}
		})
	}
}

// After an offer was given up, no later offer is admitted, because the order of the file would be lost.
func TestNothingGoesInBehindAnOfferThatWasGivenUp(t *testing.T) {
	t.Parallel()
	bad := errors.New("no right to write")
	s := newSlow(2)
	line := lineOf(s, &books{})
	a := line.Begin(t.Context(), "g", jobs("a"), admission.Park)
	s.next(t)
	b := line.Begin(t.Context(), "g", jobs("b"), admission.Park)
	s.next(t)
	s.answers[1] <- errors.New("EARLY")
	s.answers[0] <- bad
	told(t, "a", a, bad)
	told(t, "b", b, bad)
	if len(s.done) != 0 || s.came != 2 {
		t.Errorf("carried out: %v in %d offers", s.done, s.came)
	}
}

// An offer that comes after the one before it has failed is not begun.
func TestNoOfferBeginsWhenOneHasFailed(t *testing.T) {
	t.Parallel()
	bad := errors.New("no right to write")
	for _, mode := range admission.Modes() {
		s := newSlow(2)
		line := lineOf(s, &books{})
		s.answers[0] <- bad
		s.answers[1] <- nil
		told(t, "a", line.Begin(t.Context(), "g", jobs("a"), mode), bad)
		told(t, "b", line.Begin(t.Context(), "g", jobs("b"), mode), bad)
		if s.came != 1 {
			t.Errorf("%s: %d offers were made", mode, s.came)
		}
	}
}

func TestOffersOfDifferentGatewaysHaveNoOrder(t *testing.T) {
	t.Parallel()
	s, other := newSlow(1), newSlow(1)
	line := lineOf(s, other)
	a := line.Begin(t.Context(), "g", jobs("a"), admission.Park)
	s.next(t)
	b := line.Begin(t.Context(), "h", jobs("b"), admission.Park)
	if ticket := other.next(t); ticket.Behind != (job.Place{}) {
		t.Errorf("%+v", ticket)
	}
	other.answers[0] <- nil
	told(t, "b", b, nil)
	s.answers[0] <- nil
	told(t, "a", a, nil)
}

// In modes other than park, jobs without room must be admitted before the jobs behind them.
func TestOnlyWhatMayBeParkedGoesTwoAtOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []admission.Mode{admission.Wait, admission.Fail} {
		b := &books{room: 1, grow: 1}
		d := admission.New(admission.Config{Gateways: map[string]admission.Gateway{"g": {Books: b, MaxCost: 5}},
			Digest: func(json.RawMessage) string { return "" }, Away: func(error) bool { return false }, Clock: clock.Real{}})
		line := d.Line()
		for _, id := range []string{"a", "b", "c"} {
			offer := line.Begin(t.Context(), "g", jobs(id), mode)
			if n := len(b.seen); n == 0 || b.seen[n-1] != id {
				t.Errorf("%s: begun, and not ended: %v", mode, b.seen)
			}
			told(t, id, offer, nil)
		}
		line.Close()
		for _, ticket := range b.tickets {
			if ticket.Behind != (job.Place{}) {
				t.Errorf("%s: %+v", mode, ticket)
			}
		}
	}
}
