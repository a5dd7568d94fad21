package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/feed"
	"spillway/internal/handoff"
	"spillway/internal/job"
)

// stage is a feed and a sink in memory. Each can be unavailable for a number of times.
type stage struct {
	told            []feed.Outcome
	acked           string
	kept            []string
	at              string
	readAway, away  int // how often they still are
	ackAway         int
	refuses         string // a cursor that the sink refuses
	stop            func() // is called when all are put
	putWhileStopped bool
}

var errAway = &job.Error{Code: job.CodeUnavailable, Message: "away"}

func (s *stage) Read(_ context.Context, after string, limit int) (page []feed.Outcome, err error) {
	if s.readAway--; s.readAway >= 0 {
		return nil, errAway
	}
	for _, o := range s.told {
		if o.Cursor > after && len(page) < limit {
			page = append(page, o)
		}
	}
	return page, nil
}

func (s *stage) Wait(ctx context.Context, _ string, _ time.Duration) error { return ctx.Err() }

func (s *stage) Acked(context.Context, string) (string, error) { return s.acked, nil }

func (s *stage) Ack(_ context.Context, _, upto string) (feed.Acked, error) {
	if s.ackAway--; s.ackAway >= 0 {
		return feed.Acked{}, errAway
	}
	if upto > s.at {
		return feed.Acked{}, errors.New("what is not there is acknowledged")
	}
	s.acked = upto
	return feed.Acked{}, nil
}

func (s *stage) Begin(context.Context, string, string, string) (string, error) { return s.at, nil }

func (s *stage) Put(ctx context.Context, _, after string, page []feed.Outcome) (string, int, error) {
	if s.away--; s.away >= 0 {
		return after, 0, errAway
	}
	s.putWhileStopped = s.putWhileStopped || ctx.Err() != nil
	n := 0
	for _, o := range page {
		if o.Cursor == s.refuses {
			return s.at, n, &job.Error{Code: job.CodeFailed, Message: "refused"}
		}
		s.kept, s.at, n = append(s.kept, o.Cursor), o.Cursor, n+1
	}
	if s.stop != nil && len(s.kept) == len(s.told) {
		s.stop()
	}
	return s.at, n, nil
}

func newStage() *stage {
	s := &stage{}
	for i := range 25 {
		s.told = append(s.told, feed.Outcome{Cursor: fmt.Sprintf("1-%02d", i)})
	}
	return s
}

// run copies the whole stage, and returns the messages.
func (s *stage) run(ctx context.Context, cfg handoff.Config) (said string, copied int64, err error) {
	cfg.Reader, cfg.Sink, cfg.Page = "ledger", s, 10
	cfg.Say = func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "; " }
	lane := &handoff.Lane{Gateway: "g", Source: s}
	err = handoff.New(cfg, []*handoff.Lane{lane}).Run(ctx)
	return said, lane.Copied, err
}

func TestEachOutcomeIsHandedOverOnceWhateverIsAway(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*stage{"nothing": newStage(), "feed": {readAway: 2}, "sink": {away: 2}, "acknowledgement": {ackAway: 2}} {
		s.told = newStage().told
		said, copied, err := s.run(t.Context(), handoff.Config{Once: true, Patience: time.Minute})
		if err != nil || copied != 25 || len(s.kept) != 25 || s.acked != "1-24" || (name != "nothing") != (strings.HasPrefix(said, "waiting: ") && strings.HasSuffix(said, "it is back: copying goes on; ")) {
			t.Errorf("%s is away: %d copied, %d kept, acknowledged up to %s, %q, %v", name, copied, len(s.kept), s.acked, said, err)
		}
	}
}

func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	s := newStage()
	s.away = 1 << 30
	if _, _, err := s.run(t.Context(), handoff.Config{Once: true, Patience: time.Millisecond}); job.CodeOf(err) != job.CodeUnavailable {
		t.Error(err)
	}
}

func TestARefusalEndsItAndWhatWasTakenIsAcknowledged(t *testing.T) {
	t.Parallel()
	s := newStage()
	s.refuses = "1-13"
	if _, copied, err := s.run(t.Context(), handoff.Config{}); job.CodeOf(err) != job.CodeFailed || s.acked != "1-12" || copied != 13 {
		t.Error(copied, s.acked, err)
	}
}

func TestWhenItsContextEndsItHasAcknowledgedWhatItPut(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	s := newStage()
	s.stop = stop
	if _, copied, err := s.run(ctx, handoff.Config{}); !errors.Is(err, context.Canceled) || s.acked != "1-24" || copied != 25 || s.putWhileStopped {
		t.Error(copied, s.acked, err)
	}
}

// A sink that is new says that it lacks what was acknowledged before; one that is ahead is acknowledged at once.
func TestWhereItBegins(t *testing.T) {
	t.Parallel()
	s := newStage()
	s.acked = "1-03"
	if said, copied, _ := s.run(t.Context(), handoff.Config{Once: true}); copied != 25 || !strings.Contains(said, "what ledger had acknowledged before may not be in it") {
		t.Error(copied, said)
	}
	s = newStage()
	s.acked, s.at = "1-03", "1-24"
	if said, copied, err := s.run(t.Context(), handoff.Config{Once: true}); copied != 0 || said != "" || s.acked != "1-24" || err != nil {
		t.Error(copied, said, s.acked, err)
	}
}

// restored is a sink that returns to a backup once during copying. Its Begin fails if rows are lost, as that of a table does.
type restored struct {
	*stage
	back string // where it goes back to; empty: it has
}

func (r *restored) Begin(_ context.Context, _, acked, kept string) (string, error) {
	if r.at < acked && (kept == "" || r.at < kept) {
		return "", &job.Error{Code: job.CodeFailed, Message: "rows are lost"}
	}
	return r.at, nil
}

func (r *restored) Put(ctx context.Context, gateway, after string, page []feed.Outcome) (string, int, error) {
	if r.back != "" && after != "" {
		r.at, r.back, r.told = r.back, "", r.told[10:] // which the feed has let go of
	}
	if r.at != after {
		return r.at, 0, nil
	}
	return r.stage.Put(ctx, gateway, after, page)
}

// A table that is restored during copying lacks outcomes that the feed has dropped. Copying must end, because it would leave an unnoticed gap.
func TestASinkThatIsRestoredMeanwhileIsNotCopiedIntoWithAGap(t *testing.T) {
	t.Parallel()
	s := newStage()
	r := &restored{stage: s, back: "1-03"}
	lane := &handoff.Lane{Gateway: "g", Source: s}
	err := handoff.New(handoff.Config{Reader: "ledger", Sink: r, Page: 10, Once: true, Say: func(string, ...any) {}}, []*handoff.Lane{lane}).Run(t.Context())
	if job.CodeOf(err) != job.CodeFailed || s.acked != "1-09" || len(s.kept) != 10 {
		t.Errorf("%v; acknowledged up to %s, %d kept", err, s.acked, len(s.kept))
	}
}

// A new sink may be killed before it has caught up with what its reader has acknowledged. Nothing is lost as long as the feed has everything behind the sink's last outcome.
func TestANewSinkMayBeKilledBeforeItIsWhereItsReaderWas(t *testing.T) {
	t.Parallel()
	s := newStage()
	s.acked, s.at = "1-15", "1-09"
	lane := &handoff.Lane{Gateway: "g", Source: s}
	err := handoff.New(handoff.Config{Reader: "ledger", Sink: &restored{stage: s}, Page: 10, Once: true, Say: func(string, ...any) {}}, []*handoff.Lane{lane}).Run(t.Context())
	if err != nil || lane.Copied != 15 || s.acked != "1-24" {
		t.Errorf("%v; %d copied, acknowledged up to %s", err, lane.Copied, s.acked)
	}
}

// overtaken is a feed in which another program acknowledges outcomes for the same reader while the second page is read.
type overtaken struct {
	*stage
	reads int
}

func (o *overtaken) Read(ctx context.Context, after string, limit int) ([]feed.Outcome, error) {
	if o.reads++; o.reads == 3 { // the first is of Begin
		o.acked, o.told = "1-15", o.told[16:]
	}
	return o.stage.Read(ctx, after, limit)
}

// If two programs copy for one reader to two places, one acknowledges outcomes that the other has not copied. The other stops, and leaves no gap.
func TestACopierWhoseReaderIsAcknowledgedElsewhereLeavesNoGap(t *testing.T) {
	t.Parallel()
	s := newStage()
	lane := &handoff.Lane{Gateway: "g", Source: &overtaken{stage: s}}
	err := handoff.New(handoff.Config{Reader: "ledger", Sink: &restored{stage: s}, Page: 10, Once: true, Say: func(string, ...any) {}}, []*handoff.Lane{lane}).Run(t.Context())
	if job.CodeOf(err) != job.CodeFailed || len(s.kept) != 10 || s.acked != "1-15" {
		t.Errorf("%v; %d kept, acknowledged up to %s", err, len(s.kept), s.acked)
	}
}

// limping is a sink that takes one outcome of each page and then is unavailable.
type limping struct{ *stage }

func (l limping) Put(ctx context.Context, gateway, after string, page []feed.Outcome) (string, int, error) {
	at, n, _ := l.stage.Put(ctx, gateway, after, page[:1])
	return at, n, errAway
}

// A sink that takes some outcomes of each page makes progress, so patience does not end.
func TestWhoTakesSomeIsNotAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.told = s.told[:6]
		lane := &handoff.Lane{Gateway: "g", Source: s}
		err := handoff.New(handoff.Config{Reader: "ledger", Sink: limping{s}, Page: 10, Once: true, Patience: 700 * time.Millisecond, Say: func(string, ...any) {}}, []*handoff.Lane{lane}).Run(t.Context())
		if err != nil || s.acked != "1-05" || lane.Copied != 6 {
			t.Errorf("%v; %d copied, acknowledged up to %s", err, lane.Copied, s.acked)
		}
	})
}

// If the sink of one feed refuses outcomes, or is unavailable, other feeds are still copied.
func TestOneFeedThatIsRefusedStopsNoOther(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]*stage{"refused": {refuses: "1-00"}, "away": {away: 1 << 30}} {
		bad.told = newStage().told
		good := newStage()
		lanes := []*handoff.Lane{{Gateway: "bad", Source: bad}, {Gateway: "good", Source: good}}
		err := handoff.New(handoff.Config{Reader: "ledger", Sink: sinks{"bad": bad, "good": good}, Page: 10, Once: true, Patience: time.Millisecond, Say: func(string, ...any) {}}, lanes).Run(t.Context())
		if err == nil || good.acked != "1-24" || lanes[1].Copied != 25 || bad.acked != "" {
			t.Errorf("%s: %v; the other is acknowledged up to %q, %d copied", name, err, good.acked, lanes[1].Copied)
		}
	}
}

// sinks is a sink of its own for each gateway.
type sinks map[string]*stage

func (s sinks) Begin(ctx context.Context, gateway, acked, kept string) (string, error) {
	return s[gateway].Begin(ctx, gateway, acked, kept)
}

func (s sinks) Put(ctx context.Context, gateway, after string, page []feed.Outcome) (string, int, error) {
	return s[gateway].Put(ctx, gateway, after, page)
}
