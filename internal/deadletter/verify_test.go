package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// chainedStore has a trail of n entries with their links.
func chainedStore(t *testing.T, n int) *Store {
	t.Helper()
	s := New(testkit.Client(t), testkit.Gateway(t))
	lines := make([]any, 0, n)
	for i := range n {
		line, err := json.Marshal(Act{At: time.UnixMicro(1_700_000_000_000_000 + int64(i)).UTC(), Who: "ada@desk", What: "replay", Why: fmt.Sprintf("ticket %d", i)})
		if err != nil {
			t.Fatal(err)
		}
		if lines = append(lines, line); len(lines) == 1000 || i == n-1 {
			if err := s.c.RPush(t.Context(), s.keys.Trail(), lines...).Err(); err != nil {
				t.Fatal(err)
			}
			lines = lines[:0]
		}
	}
	for h := (Head{}); h.Entries < int64(n); {
		var err error
		if h, err = s.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func verified(t *testing.T, s *Store, known Head) Verified {
	t.Helper()
	v, err := s.Verify(t.Context(), known)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEachActIsChained(t *testing.T) {
	t.Parallel()
	s := New(testkit.Client(t), testkit.Gateway(t))
	if v := verified(t, s, Head{}); !v.OK || v.Entries != 0 {
		t.Errorf("%+v", v)
	}
	e := s.Entry(Act{Who: "ada", What: "replay"})
	if err := e.Begin(t.Context()); err != nil || e.Place() != "0" {
		t.Fatal(err, e.Place())
	}
	if err := s.c.RPush(t.Context(), s.keys.Trail(), `{"who":"spillway","what":"batch pause"}`).Err(); err != nil { // as brake_trail in books.lua does
		t.Fatal(err)
	}
	if v := verified(t, s, Head{}); !v.OK || v.Entries != 2 || v.Unchained != 1 || v.Head.Links != 1 {
		t.Errorf("%+v", v)
	}
	if err := e.End(t.Context(), Deed{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Entry(Act{Who: "bob", What: "pause"}).Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := verified(t, s, Head{})
	if !v.OK || v.Entries != 3 || v.Unchained != 0 || v.Before != 0 || v.Head.Links != 4 || v.Head.Entries != 3 || len(v.Head.Hash) != 64 {
		t.Errorf("%+v", v)
	}
	for range 2 {
		if h, err := s.Seal(t.Context()); err != nil || h != v.Head {
			t.Errorf("%+v %v", h, err)
		}
	}
}

func TestActsAtOnceMakeOneChain(t *testing.T) {
	t.Parallel()
	s := New(testkit.Client(t), testkit.Gateway(t))
	const people, acts = 8, 10
	places := make([][]string, people)
	var all sync.WaitGroup
	for p := range people {
		all.Go(func() {
			for range acts {
				e := s.Entry(Act{Who: fmt.Sprint(p), What: "discard"})
				if err := e.Begin(t.Context()); err != nil {
					t.Error(err)
				}
				places[p] = append(places[p], e.Place())
				if err := e.End(t.Context(), Deed{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if v := verified(t, s, Head{}); !v.OK || v.Entries != people*acts || v.Head.Links != 2*people*acts {
		t.Errorf("%+v", v)
	}
	for p, mine := range places {
		for _, place := range mine {
			if a, err := s.actAt(t.Context(), place); err != nil || a.Who != fmt.Sprint(p) || a.Ended == nil {
				t.Errorf("%s: %+v %v, want %d's", place, a, err, p)
			}
		}
	}
}

func TestWhateverIsDoneToTheTrailIsNamed(t *testing.T) {
	t.Parallel()
	const n = 9
	for name, c := range map[string]struct {
		do   string // to KEYS 1 trail, 2 journal, 3 head
		want string
	}{
		"a byte of an entry":    {`local l = redis.call('LINDEX', KEYS[1], 4); redis.call('LSET', KEYS[1], 4, (string.gsub(l, 'ada', 'eve')))`, "entry 5 of the trail was changed"},
		"the last entry":        {`local l = redis.call('LINDEX', KEYS[1], -1); redis.call('LSET', KEYS[1], -1, l .. ' ')`, "entry 9 of the trail was changed"},
		"an entry is removed":   {`redis.call('LREM', KEYS[1], 1, redis.call('LINDEX', KEYS[1], 3))`, "entry 4 is missing of the trail"},
		"two are removed":       {`for i = 1, 2 do redis.call('LREM', KEYS[1], 1, redis.call('LINDEX', KEYS[1], 3)) end`, "entries 4 to 5 are missing of the trail"},
		"the first is removed":  {`redis.call('LPOP', KEYS[1])`, "entry 1 is missing of the trail"},
		"the last is removed":   {`redis.call('RPOP', KEYS[1])`, "entry 9 is missing at the end of the trail"},
		"all are removed":       {`redis.call('DEL', KEYS[1])`, "entries 1 to 9 are missing at the end of the trail"},
		"two are swapped":       {`local a, b = redis.call('LINDEX', KEYS[1], 2), redis.call('LINDEX', KEYS[1], 6); redis.call('LSET', KEYS[1], 2, b); redis.call('LSET', KEYS[1], 6, a)`, "entry 7 stands there"},
		"one is put before":     {`redis.call('LPUSH', KEYS[1], '{}')`, "entry 1 of the trail was changed"},
		"a byte of a link":      {`local l = redis.call('LINDEX', KEYS[2], 4); redis.call('LSET', KEYS[2], 4, (string.gsub(l, '"n":5', '"n":5 ')))`, "link 5 of the chain was changed"},
		"an entry and its link": {`redis.call('RPOP', KEYS[1]); redis.call('RPOP', KEYS[2])`, "link 9 is missing at the end of the chain"},
		"a link is removed":     {`redis.call('LREM', KEYS[2], 1, redis.call('LINDEX', KEYS[2], 3))`, "link 4 is missing of the chain"},
		"links are swapped":     {`local a, b = redis.call('LINDEX', KEYS[2], 2), redis.call('LINDEX', KEYS[2], 3); redis.call('LSET', KEYS[2], 2, b); redis.call('LSET', KEYS[2], 3, a)`, "link 3 of the chain stands behind link 4"},
		"the chain is removed":  {`redis.call('DEL', KEYS[2])`, "links 1 to 9 are missing at the end of the chain"},
		"the head is removed":   {`redis.call('DEL', KEYS[3])`, "its head says 0"},
		"the head is nonsense":  {`redis.call('SET', KEYS[3], 'x')`, "the head of the chain can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := chainedStore(t, n)
			if v := verified(t, s, Head{}); !v.OK || v.Before != n {
				t.Fatalf("%+v", v)
			}
			if err := s.c.Eval(t.Context(), c.do, []string{s.keys.Trail(), s.keys.Journal(), s.keys.Head()}).Err(); err != nil && err.Error() != "redis: nil" {
				t.Fatal(err)
			}
			if v := verified(t, s, Head{}); v.OK || !strings.Contains(strings.Join(v.Findings, "\n"), c.want) {
				t.Errorf("%q, want %q", v.Findings, c.want)
			}
		})
	}
}

// Any changed byte of a short trail or its chain is noticed.
func TestNoByteOfTheTrailIsChangedUnseen(t *testing.T) {
	t.Parallel()
	s := chainedStore(t, 3)
	for _, key := range []string{s.keys.Trail(), s.keys.Journal()} {
		for place := range int64(3) {
			line, err := s.c.LIndex(t.Context(), key, place).Result()
			if err != nil {
				t.Fatal(err)
			}
			for i := range len(line) {
				changed := []byte(line)
				changed[i] ^= 1
				if err := s.c.LSet(t.Context(), key, place, changed).Err(); err != nil {
					t.Fatal(err)
				}
				if verified(t, s, Head{}).OK {
					t.Errorf("%s: byte %d of line %d was changed unseen", key, i, place)
				}
			}
			if err := s.c.LSet(t.Context(), key, place, line).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v := verified(t, s, Head{}); !v.OK {
		t.Errorf("%+v", v)
	}
}

// A chain that somebody rewrote as a whole, or that a restored Redis continued, differs from a head that was recorded elsewhere.
func TestAHeadThatWasWrittenDownTellsOfAnotherChain(t *testing.T) {
	t.Parallel()
	s := chainedStore(t, 4)
	was, err := s.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v := verified(t, s, was); !v.OK {
		t.Fatalf("%+v", v)
	}
	if err := s.c.Del(t.Context(), s.keys.Journal(), s.keys.Head()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.c.LSet(t.Context(), s.keys.Trail(), 1, `{"who":"eve"}`).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := verified(t, s, Head{}); !v.OK {
		t.Fatalf("%+v", v)
	}
	if v := verified(t, s, was); v.OK || !strings.Contains(v.Findings[0], "and not "+was.Hash) {
		t.Errorf("%+v", v)
	}
	if v := verified(t, s, Head{Links: 6, Hash: was.Hash}); v.OK || !strings.Contains(v.Findings[0], "links 5 to 6 are missing") {
		t.Errorf("%+v", v)
	}
}

// If somebody cut off the trail, later acts are recorded behind the missing entries, and take the place of none.
func TestActsGoOnBehindATrailThatWasCutOff(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]int64{"the end": 6, "all": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 9
			s, from := chainedStore(t, n), int64(0)
			if keep == 0 {
				from = n // beyond the end: nothing is left
			}
			if err := s.c.LTrim(t.Context(), s.keys.Trail(), from, keep-1).Err(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var acts sync.WaitGroup
			for i := range 4 {
				acts.Go(func() {
					if e := s.Entry(Act{Who: fmt.Sprint("bob", i), What: "replay"}); e.Begin(ctx) != nil || e.End(ctx, Deed{}) != nil {
						t.Error("not written")
					}
				})
			}
			acts.Wait()
			v := verified(t, s, Head{})
			if v.Entries != n+4 || v.Faults != n-keep || v.Findings[0] != fmt.Sprintf("entry %d of the trail was changed", keep+1) {
				t.Errorf("%+v", v)
			}
		})
	}
	s := chainedStore(t, 2)
	if err := s.c.Set(t.Context(), s.keys.Head(), "3 1000000000 ab", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Entry(Act{Who: "bob", What: "replay"}).Begin(t.Context()); err == nil || !strings.Contains(err.Error(), "1000000000 entries, and has 2 links") {
		t.Error(err)
	}
}

// Verifying a trail with ten times as many entries takes about ten times as long.
func TestALongTrailIsVerifiedInTime(t *testing.T) {
	takes := func(n int) time.Duration {
		s := chainedStore(t, n)
		begun := time.Now()
		v := verified(t, s, Head{})
		took := time.Since(begun)
		t.Logf("%d entries in %s", v.Entries, took.Round(time.Millisecond))
		if !v.OK || v.Entries != int64(n) {
			t.Errorf("%+v", v)
		}
		return took
	}
	short := max(takes(10_000), takes(10_000), takes(10_000))
	if long := takes(100_000); long > 40*short {
		t.Errorf("a trail that is ten times as long takes %s, and not %s", long, short)
	}
}
