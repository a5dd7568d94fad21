package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/verify"
)

// violation is a change of the files of a clean run that must be found.
type violation struct {
	name, kind string
	plant      func(t *testing.T, h *history)
	want       map[verify.Kind]int64 // and nothing else
}

func (v violation) find(t *testing.T, h *history) {
	t.Helper()
	v.plant(t, h)
	r := h.verified(t)
	if maps.Equal(r.Counts, v.want) && r.OK == (len(v.want) == 0) {
		return
	}
	t.Errorf("found %v, want %v", r.Counts, v.want)
	for _, f := range r.Findings {
		t.Logf("%s %s: %s %v", f.Kind, f.ID, f.Text, f.Where)
	}
}

// evenly spaces the calls by that many microseconds, in their order.
func (h *history) evenly(apart int64) {
	for i := range h.calls {
		h.calls[i].At = h.calls[0].At + int64(i)*apart
	}
}

// crowd moves the calls that fit to one moment after all others, and adds repeats that charge nothing, until there is one more than the limit allows.
func (h *history) crowd(limit int, fit func(provider.CallLine) bool) {
	last, n := h.calls[len(h.calls)-1].At+time.Minute.Microseconds(), 0
	var one provider.CallLine
	for i := range h.calls {
		if fit(h.calls[i]) {
			h.calls[i].At = last
			one, n = h.calls[i], n+1
		}
	}
	one.Charged, one.Amount, one.Reference = false, nil, ""
	for ; n <= limit; n++ {
		h.calls = append(h.calls, one)
	}
}

// charge returns the call that charged a job.
func (h *history) charge(t *testing.T, id string) *provider.CallLine {
	t.Helper()
	for i := range h.calls {
		if c := &h.calls[i]; c.Charged && jobOf(*c) == id {
			return c
		}
	}
	t.Fatalf("no charge of %s", id)
	return nil
}

func (h *history) book(t *testing.T, id string) map[string]any {
	t.Helper()
	for _, b := range h.books {
		if b["id"] == id {
			return b
		}
	}
	t.Fatalf("no record of %s", id)
	return nil
}

// first returns the first job of the books in a state.
func (h *history) first(t *testing.T, state string) string {
	t.Helper()
	for _, b := range h.books {
		if b["state"] == state {
			return b["id"].(string)
		}
	}
	t.Fatalf("no job of %s is %s", h.kind, state)
	return ""
}

// uncalled removes the calls of jobs from the log.
func (h *history) uncalled(ids ...string) {
	h.calls = slices.DeleteFunc(h.calls, func(c provider.CallLine) bool { return slices.Contains(ids, jobOf(c)) })
}

func (h *history) unbooked(id string) {
	h.books = slices.DeleteFunc(h.books, func(b map[string]any) bool { return b["id"] == id })
}

// again adds a copy of a call.
func (h *history) again(c provider.CallLine, later time.Duration, key string) {
	c.At, c.Key = c.At+later.Microseconds(), key
	h.calls = append(h.calls, c)
}

// entries returns the lines of the trail that are entries.
func (h *history) entries() (all []map[string]any) {
	for _, l := range h.trail {
		if l["kind"] == "entry" {
			all = append(all, l)
		}
	}
	return all
}

// planted returns the violations. Each changes the files of a real run.
func planted() []violation {
	type found = map[verify.Kind]int64
	set := func(id, field string, to any) func(*testing.T, *history) {
		return func(t *testing.T, h *history) { h.book(t, id)[field] = to }
	}
	return []violation{
		{"calls exactly as near as the limit allows", "plain", func(_ *testing.T, h *history) { h.limits = []string{"40/s"}; h.evenly(25_000) }, found{}},
		{"a call a microsecond too early", "plain", func(_ *testing.T, h *history) { h.limits = []string{"40/s"}; h.evenly(25_000); h.calls[60].At-- }, found{verify.Window: 1}},
		{"a second too full", "plain", func(_ *testing.T, h *history) { h.limits = h.limits[:1]; h.evenly(24_000) }, found{verify.Window: 1}},
		{"two seconds too full, and no second", "plain", func(_ *testing.T, h *history) { h.evenly(27_000) }, found{verify.Window: 1}},
		{"a path's window too full", "routes", func(_ *testing.T, h *history) {
			h.crowd(20, func(c provider.CallLine) bool { return c.Path == "/refunds" })
		}, found{verify.Window: 1}},
		{"a lane's window too full", "lanes", func(_ *testing.T, h *history) {
			h.crowd(30, func(c provider.CallLine) bool { return c.Headers["X-Lane"] == "lane-1" })
		}, found{verify.Window: 1}},
		{"a job that is done and was never called", "plain", func(_ *testing.T, h *history) { h.uncalled("plain-007") }, found{verify.Lost: 1, verify.MoneySum: 1}},
		{"the end of the log is missing", "plain", func(_ *testing.T, h *history) { h.calls = h.calls[:len(h.calls)-10] }, found{verify.Lost: 10, verify.MoneySum: 1}},
		{"a job that is in neither", "plain", func(_ *testing.T, h *history) { h.uncalled("plain-007"); h.unbooked("plain-007") }, found{verify.InNeither: 1}},
		{"a charge that the books don't have", "plain", func(_ *testing.T, h *history) { h.unbooked("plain-007") }, found{verify.NotInBooks: 1}},
		{"two charges under one key", "plain", func(t *testing.T, h *history) {
			h.again(*h.charge(t, "plain-007"), time.Hour, "plain-007")
		}, found{verify.ChargedTwice: 1, verify.MoneySum: 1}},
		{"two charges under two keys", "retries", func(t *testing.T, h *history) {
			h.again(*h.charge(t, "retries-007"), time.Hour, "retries-007~2")
		}, found{verify.ChargedTwice: 1, verify.MoneySum: 1}},
		{"a charge after a look-up had found one", "asked", func(t *testing.T, h *history) {
			h.again(*h.charge(t, "asked-021"), time.Hour, "asked-021")
		}, found{verify.ChargedTwice: 1, verify.MoneySum: 1}},
		{"a job called long after those behind it", "plain", func(t *testing.T, h *history) { h.charge(t, "plain-007").At += time.Minute.Microseconds() }, found{verify.Order: 1}},
		{"a job called long after those of its lane", "lanes", func(t *testing.T, h *history) { h.charge(t, "lanes-010").At += time.Minute.Microseconds() }, found{verify.Order: 1}},
		{"another amount in the books", "plain", set("plain-007", "amount", json.Number("108")), found{verify.OtherAmount: 1, verify.MoneySum: 1}},
		{"another amount at the provider", "declines", func(t *testing.T, h *history) {
			more := int64(999)
			h.charge(t, h.first(t, "done")).Amount = &more
		}, found{verify.OtherAmount: 1, verify.MoneySum: 1}},
		{"another currency", "plain", set("plain-007", "currency", "USD"), found{verify.OtherCurrency: 1, verify.MoneySum: 2}},
		{"charged, and refused in the books", "plain", func(t *testing.T, h *history) {
			b := h.book(t, "plain-007")
			b["state"], b["reason"] = "parked", "refused"
		}, found{verify.ChargedNotDone: 1}},
		{"done in the books, and declined", "declines", func(t *testing.T, h *history) {
			h.book(t, h.first(t, "parked"))["state"] = "done"
		}, found{verify.DoneNotCharged: 1, verify.MoneySum: 1}},
		{"cancelled in the books, and called", "cancelled", func(t *testing.T, h *history) {
			b := h.book(t, h.first(t, "done"))
			b["state"], b["reason"] = "parked", "cancelled"
			delete(b, "called_at")
		}, found{verify.CalledNotSaid: 1}},
		{"a job twice in the books", "noroom", func(t *testing.T, h *history) { h.books = append(h.books, h.book(t, "noroom-050")) }, found{verify.TwoPlaces: 1}},
		{"an answer that was not given", "declines", func(t *testing.T, h *history) {
			h.book(t, h.first(t, "parked"))["status"] = json.Number("404")
		}, found{verify.OtherAnswer: 1}},
		{"another reference", "plain", set("plain-007", "reference", "ch_0"), found{verify.OtherReference: 1}},
		{"settled as done, and never charged", "keyless", func(_ *testing.T, h *history) { h.uncalled("keyless-011") }, found{verify.DoneNotCharged: 1, verify.MoneySum: 1}},
		{"an entry of the trail was changed", "declines", func(_ *testing.T, h *history) {
			e := h.entries()[0]
			e["text"] = strings.Replace(e["text"].(string), "customer has left", "told to", 1)
		}, found{verify.Trail: 2}},
		{"an entry of the trail was changed, and its hash", "declines", func(_ *testing.T, h *history) {
			e := h.entries()[0]
			text := strings.Replace(e["text"].(string), "customer has left", "told to", 1)
			sum := sha256.Sum256([]byte(text))
			e["text"], e["sha256"] = text, hex.EncodeToString(sum[:])
		}, found{verify.Trail: 1}},
		{"an entry of the trail was taken out", "declines", func(_ *testing.T, h *history) {
			gone := h.entries()[1]
			h.trail = slices.DeleteFunc(h.trail, func(l map[string]any) bool { return fmt.Sprint(l) == fmt.Sprint(gone) })
		}, found{verify.Trail: 1}},
		{"the trail was cut off", "keyless", func(_ *testing.T, h *history) { h.trail = h.trail[:len(h.trail)-1] }, found{verify.Trail: 1}},
		{"a trail without what people did", "keyless", func(_ *testing.T, h *history) {
			h.trail = []map[string]any{{"gateway": "keyless", "kind": "head"}}
		}, found{verify.Unwritten: 1}},
	}
}
