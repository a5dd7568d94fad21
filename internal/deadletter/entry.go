package deadletter

import (
	"context"
	"crypto/sha256"
	"time"

	"spillway/internal/job"
	"spillway/internal/pan"

	_ "embed" // for the script
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

// for the scripts

//go:embed chain.lua
var chainLua string

var chainScript = redisdb.NewScript(chainLua)

// Act is one action of an operator on dead letters, as an audit entry.
type Act struct {
	At  time.Time `json:"at"` // on Redis's clock
	Who string    `json:"who"`
	// Said is the name that the operator gave, if it differs from Who, the name of the token used. Via is how
	// Who is known: token, by the token of that name; shared_token or no_token, only by their word; redis, by
	// their word and by having Redis's password. Empty: the entry is older than this field.
	Said string `json:"said,omitempty"`
	Via  string `json:"via,omitempty"`
	What string `json:"what"` // replay, discard, resolve --done, resolve --not-done, replace or park
	Why  string `json:"why,omitempty"`
	// Asked is who requested it, if it needed another person's approval.
	Asked string `json:"asked_by,omitempty"`
	// Request is the id of the approved or rejected request. Empty: no approval was needed.
	Request string `json:"request,omitempty"`
	Filter  string `json:"filter"` // the flags that selected the jobs and the mode; empty means all of the gateway
	Deed
	// Ended is when it ended. It is nil while the act is in progress, and stays nil if it was killed: Jobs is
	// right even then, but Amount and NoAmount may be a second behind.
	Ended *time.Time `json:"ended"`
}

// Deed is the extent of an act.
type Deed struct {
	job.Totals // the jobs affected
	// Replaced is the payloads before the act; nil if none was replaced.
	Replaced *Exchange `json:"replaced,omitempty"`
}

// Entry is an act in the audit trail. It is written before the first job is touched, so that even an act that
// is killed is recorded.
type Entry struct {
	store *Store
	place int64 // from the start of the trail, which is never trimmed; -1 before it is written
	act   Act
	begun time.Time
}

// Entry returns an entry that is not written yet.
func (s *Store) Entry(a Act) *Entry { return &Entry{store: s, place: -1, act: a} }

// Place returns the act's place in the trail; empty before it is written.
func (e *Entry) Place() string {
	if e.place < 0 {
		return ""
	}
	return strconv.FormatInt(e.place, 10)
}

// Begin writes the entry, before anything is done.
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

// Note records how much the act has done by now. Before Begin it does nothing.
func (e *Entry) Note(ctx context.Context, d Deed) error {
	if e.place < 0 || d.Jobs == e.act.Jobs {
		return nil
	}
	return e.write(ctx, d)
}

// End records everything that the act did, and its end.
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
		e.act.Jobs = -1 // retry at the next call
		return e.unwritten(err)
	}
	return nil
}

func (e *Entry) line() ([]byte, error) { return json.Marshal(e.act.Clean()) }

// Clean returns the act with card numbers in typed texts masked, because an entry is permanent.
func (a Act) Clean() Act {
	for _, text := range []*string{&a.Who, &a.Said, &a.Asked, &a.What, &a.Why, &a.Filter} {
		*text = pan.MaskString(*text)
	}
	return a
}

func (e *Entry) unwritten(err error) error {
	return fmt.Errorf("write down who did what to the dead letters of %s: %w", e.store.gateway, err)
}

// Link is one link of the hash chain of the audit trail. Each entry has one, and another for each update of the
// entry. The hash of a link is the SHA-256 of its JSON as stored.
type Link struct {
	N     int64  `json:"n"`     // counted from 1
	Place int64  `json:"place"` // index of the entry in the trail, from 0
	Entry string `json:"entry"` // SHA-256 of the entry as stored, in hex
	// Before says that the entry is older than the chain.
	Before bool   `json:"before,omitempty"`
	Prev   string `json:"prev"` // hash of the previous link; empty for the first
}

// Head is the end of the chain.
type Head struct {
	Links   int64  `json:"links"`
	Entries int64  `json:"entries"` // number of entries with a link: the first ones
	Hash    string `json:"hash"`    // hash of the last link; empty if there is none
}

func (h Head) text() string { return fmt.Sprintf("%d %d %s", h.Links, h.Entries, h.Hash) }

// Number returns the first 48 bits of the hash as a number, which a metric can hold exactly.
func (h Head) Number() float64 {
	const digits = 12
	if len(h.Hash) < digits {
		return 0
	}
	n, _ := strconv.ParseUint(h.Hash[:digits], 16, 64) // 0 if the hash is invalid
	return float64(n)
}

func parseHead(text string) (h Head, err error) {
	if text == "" {
		return h, nil
	}
	if _, err = fmt.Sscanf(text, "%d %d %s", &h.Links, &h.Entries, &h.Hash); err != nil || h.Links < 0 || h.Entries < 0 {
		return Head{}, errors.New("the head of the chain can't be read: another program has written to Redis")
	}
	return h, nil
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// linksOnce is how many links one step adds.
const linksOnce = 5000

// chained writes an entry into the trail at place (-1: append), with its link and the missing links before it.
// It returns the entry's place. Without a line it only adds missing links, for entries that scripts have
// written.
func (s *Store) chained(ctx context.Context, place int64, line []byte) (int64, error) {
	mine := "" // the head that shows that a write with a lost reply succeeded
	for {
		t, err := s.tail(ctx)
		if err != nil {
			return 0, err
		}
		if mine != "" && t.text == mine {
			return t.placeOf(place), nil
		}
		if t.length < t.head.Entries {
			if err := s.fill(ctx, t); err != nil {
				return 0, err
			}
			continue
		}
		whole := int64(len(t.open)) == t.length-t.head.Entries
		if line == nil && len(t.open) == 0 {
			return 0, nil
		}
		args, next := t.links(s, place, line, whole)
		done, err := chainScript.Run(ctx, s.c, []string{s.keys.Trail(), s.keys.Journal(), s.keys.Head()}, args...).Int()
		if err != nil {
			return 0, err
		}
		written := whole && line != nil
		switch {
		case done == 1 && whole:
			return next.placeOf(place), nil
		case done == 0 && written:
			mine = next.text
		}
	}
}

// fill replaces entries removed from the end of the trail by placeholders. Later entries thus keep their
// places, and Verify still names each removed entry. Otherwise the next entry would take the place of a removed
// one.
func (s *Store) fill(ctx context.Context, t tail) error {
	links, err := s.c.LLen(ctx, s.keys.Journal()).Result()
	if err != nil {
		return err
	}
	if t.head.Entries > links { // each has at least one link
		return fmt.Errorf("its chain says that it has %d entries, and has %d links: another program has written to Redis: look at GET %s and LLEN %s", t.head.Entries, links, s.keys.Head(), s.keys.Journal())
	}
	now, err := s.c.Time(ctx).Result()
	if err != nil {
		return err
	}
	gone, err := json.Marshal(Act{At: now, What: Damaged, Why: "the entry that stood here was removed: another program has written to Redis"})
	if err != nil {
		return err
	}
	return chainScript.Run(ctx, s.c, []string{s.keys.Trail(), s.keys.Journal(), s.keys.Head()}, t.text, t.length, t.text, "-1", gone).Err()
}

// tail is what the chain lacks.
type tail struct {
	text   string // of the head
	head   Head
	length int64    // of the trail
	open   []string // the first entries without a link
}

// placeOf returns the place of an entry just written: place, or the last one.
func (t tail) placeOf(place int64) int64 {
	if place < 0 {
		return t.head.Entries - 1
	}
	return place
}

// tail reads in steps. If someone writes in between, the script does nothing.
func (s *Store) tail(ctx context.Context) (t tail, err error) {
	var head *redis.StringCmd
	var length *redis.IntCmd
	if _, err := s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		head, length = p.Get(ctx, s.keys.Head()), p.LLen(ctx, s.keys.Trail())
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return t, err
	}
	t.text, t.length = head.Val(), length.Val()
	if t.head, err = parseHead(t.text); err != nil || t.head.Entries >= t.length {
		return t, err
	}
	t.open, err = s.c.LRange(ctx, s.keys.Trail(), t.head.Entries, min(t.length, t.head.Entries+linksOnce)-1).Result()
	return t, err
}

// links returns the script's arguments, and the tail afterwards. The entry is included only if all missing
// links are.
func (t tail) links(s *Store, place int64, line []byte, whole bool) (args []any, next tail) {
	next = t
	var links []any
	add := func(at int64, entry []byte, before bool) {
		next.head.Links++
		text, _ := json.Marshal(Link{N: next.head.Links, Place: at, Entry: hashOf(entry), Before: before, Prev: next.head.Hash}) // no value in it can fail
		next.head.Hash = hashOf(text)
		links = append(links, text)
	}
	for _, entry := range t.open {
		add(next.head.Entries, []byte(entry), t.text == "")
		next.head.Entries++
	}
	at := ""
	if whole && line != nil {
		at = fmt.Sprint(place)
		if place < 0 {
			place = next.head.Entries
			next.head.Entries++
		}
		add(place, line, false)
	}
	next.text = next.head.text()
	return append([]any{t.text, t.length, next.text, at, line}, links...), next
}

// Seal adds links for the entries that scripts have written, and returns the head of the chain.
func (s *Store) Seal(ctx context.Context) (Head, error) {
	if _, err := s.chained(ctx, -1, nil); err != nil {
		return Head{}, fmt.Errorf("chain the trail of %s: %w", s.gateway, err)
	}
	return s.Head(ctx)
}

// Head returns the current head of the chain.
func (s *Store) Head(ctx context.Context) (Head, error) {
	text, err := s.c.Get(ctx, s.keys.Head()).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Head{}, fmt.Errorf("read the head of the trail of %s: %w", s.gateway, err)
	}
	return parseHead(text)
}

// EndAct marks the act at a place of the trail as ended, on Redis's clock.
func (s *Store) EndAct(ctx context.Context, place int64) error {
	line, err := s.c.LIndex(ctx, s.keys.Trail(), place).Bytes()
	if err != nil {
		return err
	}
	var act Act
	if err := json.Unmarshal(line, &act); err != nil {
		return err
	}
	now, err := s.c.Time(ctx).Result()
	if err != nil {
		return err
	}
	act.Ended = &now
	if line, err = json.Marshal(act); err != nil {
		return err
	}
	_, err = s.chained(ctx, place, line)
	return err
}
