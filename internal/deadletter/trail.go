package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/pan"
	"spillway/internal/redisdb"
)

// Act is one thing that a person did to dead letters.
type Act struct {
	At  time.Time `json:"at"` // on Redis's clock
	Who string    `json:"who"`
	// Said is who he said that he is, where Who is the name of the token that he showed and he said something else. Via is how it is known that he is Who: token, by the
	// token of that name; shared_token or no_token, by nothing but his word; redis, by his word, and he has Redis's password. Empty: it was written down before there was one.
	Said string `json:"said,omitempty"`
	Via  string `json:"via,omitempty"`
	What string `json:"what"` // replay, discard, resolve --done, resolve --not-done, replace or park
	Why  string `json:"why,omitempty"`
	// Asked is who asked for it, where another one had to approve it.
	Asked string `json:"asked_by,omitempty"`
	// Request is the id of what was asked for, approved or rejected. Empty: nobody had to.
	Request string `json:"request,omitempty"`
	Filter  string `json:"filter"` // the flags that chose the jobs, and that said how; empty means all of the gateway
	Deed
	// Ended is when it was over; nil while it is under way, and for ever if it was killed: Jobs is right then too, Amount and NoAmount may
	// be a second behind.
	Ended *time.Time `json:"ended"`
}

// Deed is how much an act did.
type Deed struct {
	job.Totals // of the jobs that it did it to
	// Replaced is what the payloads were before; nil where none was replaced.
	Replaced *Exchange `json:"replaced,omitempty"`
}

// Entry is an act as it stands in the trail. It is there before its first job is touched, so that an act which is killed
// has been written down too.
type Entry struct {
	store *Store
	place int64 // from the start of the trail, which is never trimmed; -1 before it is written
	act   Act
	begun time.Time
}

// Entry returns an entry that is not written yet.
func (s *Store) Entry(a Act) *Entry { return &Entry{store: s, place: -1, act: a} }

// Place is the act's place in the trail; empty before it is written.
func (e *Entry) Place() string {
	if e.place < 0 {
		return ""
	}
	return strconv.FormatInt(e.place, 10)
}

// Begin writes the act down, before anything is done.
func (e *Entry) Begin(ctx context.Context) error {
	e.begun = time.Now()
	line, err := e.line()
	if err != nil {
		return err
	}
	if err := redisdb.NotLeaving(ctx, e.store.c, e.store.gateway); err != nil {
		return err
	}
	place, err := e.store.chained(ctx, -1, line)
	if err != nil {
		return e.unwritten(err)
	}
	e.place = place
	return nil
}

// Note writes down how much the act has done by now. An act that has not begun did nothing.
func (e *Entry) Note(ctx context.Context, d Deed) error {
	if e.place < 0 || d.Jobs == e.act.Jobs {
		return nil
	}
	return e.write(ctx, d)
}

// End writes down all that the act did, and that it is over.
func (e *Entry) End(ctx context.Context, d Deed) error {
	if e.place < 0 {
		return nil
	}
	ended := e.act.At.Add(time.Since(e.begun)).Truncate(time.Microsecond)
	e.act.Ended = &ended
	if err := e.write(ctx, d); err != nil {
		return err
	}
	if err := e.store.c.HDel(ctx, e.store.keys.Acts(), e.Place()).Err(); err != nil {
		return e.unwritten(err)
	}
	return nil
}

func (e *Entry) write(ctx context.Context, d Deed) error {
	e.act.Deed = d
	line, err := e.line()
	if err != nil {
		return err
	}
	if _, err := e.store.chained(ctx, e.place, line); err != nil {
		e.act.Jobs = -1 // try again at the next call
		return e.unwritten(err)
	}
	return nil
}

func (e *Entry) line() ([]byte, error) { return json.Marshal(e.act.Clean()) }

// Clean returns the act with the card numbers in what people typed masked: an entry is kept for ever.
func (a Act) Clean() Act {
	for _, text := range []*string{&a.Who, &a.Said, &a.Asked, &a.What, &a.Why, &a.Filter} {
		*text = pan.MaskString(*text)
	}
	return a
}

func (e *Entry) unwritten(err error) error {
	return fmt.Errorf("write down who did what to the dead letters of %s: %w", e.store.gateway, err)
}

// Acts yields what people did to the gateway's dead letters, oldest first. It reads page by page: the trail is never trimmed.
func (s *Store) Acts(ctx context.Context) iter.Seq2[Act, error] {
	return func(yield func(Act, error) bool) {
		counts, err := s.counted(ctx)
		if err != nil {
			yield(Act{}, err)
			return
		}
		for from := int64(0); ; from += page {
			lines, err := s.c.LRange(ctx, s.keys.Trail(), from, from+page-1).Result()
			if err != nil {
				yield(Act{}, fmt.Errorf("read what was done to the dead letters of %s: %w", s.gateway, err))
				return
			}
			for i, line := range lines {
				a := s.parseAct(line, from+int64(i))
				counts.correct(&a, from+int64(i))
				if !yield(a, nil) {
					return
				}
			}
			if len(lines) < page {
				return
			}
		}
	}
}

// LastActs returns the last n acts, oldest first.
func (s *Store) LastActs(ctx context.Context, n int64) ([]Act, error) {
	counts, err := s.counted(ctx)
	if err != nil {
		return nil, err
	}
	var length *redis.IntCmd
	var read *redis.StringSliceCmd
	if _, err := s.c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		length, read = p.LLen(ctx, s.keys.Trail()), p.LRange(ctx, s.keys.Trail(), -n, -1)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read what was done to the dead letters of %s: %w", s.gateway, err)
	}
	lines := read.Val()
	acts := make([]Act, len(lines))
	for i, line := range lines {
		place := length.Val() - int64(len(lines)-i)
		acts[i] = s.parseAct(line, place)
		counts.correct(&acts[i], place)
	}
	return acts, nil
}

// counted is how many jobs acts without an end have been done to, by their place.
type counted map[string]string

func (s *Store) counted(ctx context.Context) (counted, error) {
	all, err := s.c.HGetAll(ctx, s.keys.Acts()).Result()
	if err != nil {
		return nil, fmt.Errorf("read what was done to the dead letters of %s: %w", s.gateway, err)
	}
	return all, nil
}

// correct gives an act without an end the count that the scripts kept: its own may be a second old.
func (c counted) correct(a *Act, place int64) {
	if n, err := strconv.ParseInt(c[strconv.FormatInt(place, 10)], 10, 64); err == nil && a.Ended == nil {
		a.Jobs = max(a.Jobs, n)
	}
}

// Damaged is what stands for What in an act that can't be read.
const Damaged = "damaged"

// parseAct reads one entry of the trail. One that somebody has damaged says so, so that the others are seen all the same.
func (s *Store) parseAct(line string, place int64) Act {
	var a Act
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		why := fmt.Sprintf("entry %d of %s can't be read: somebody has written into Redis; look at it with LINDEX", place+1, s.keys.Trail())
		return Act{What: Damaged, Why: why}
	}
	return a
}
