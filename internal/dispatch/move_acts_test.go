package dispatch

import (
	"errors"
	"strings"
	"testing"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Between two steps of a rename, acts that admit parked jobs again are refused, so that they overwrite no books.
func TestNothingIsTakenInAgainDuringARename(t *testing.T) {
	t.Parallel()
	url := testkit.Server(t).URL()
	m := newMover(t, url)
	m.put(m.old, 40)
	before, books := m.stands(m.old), Books(m.db.Client, m.old)
	var parked []job.Return
	for r, err := range Store(m.db.Client, m.old).List(t.Context(), deadletter.Filter{}) {
		m.must(err)
		parked = append(parked, job.Return{ID: r.Job.ID, Generation: r.Generation, Reason: r.Reason})
	}
	c, _ := m.cutting(url, 9, true)
	if err := m.moving(c).Rename(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	_, _, err := books.Readmit(t.Context(), parked)
	if err == nil || !strings.Contains(err.Error(), "was begun and is not over") {
		t.Errorf("%d jobs were taken in again: %v", len(parked), err)
	}
	m.must(m.moving(m.db.Client).Rename(t.Context()))
	if got := m.stands(m.new); got != before || !strings.Contains(got, "faults 0") {
		t.Errorf("%s\nwas\n%s", got, before)
	}
}

// A job exists under both names. Nothing is overwritten, the error names the keys and says what to do, and the rename continues when one of them is deleted.
func TestARenameOverwritesNoJob(t *testing.T) {
	t.Parallel()
	m := newMover(t, testkit.Redis(t))
	m.put(m.old, 30)
	before, foreign := m.stands(m.old), redisdb.NewKeys(m.new.Name).Job("C-007")
	m.must(m.db.Client.HSet(t.Context(), foreign, "x", "1").Err())
	err := m.moving(m.db.Client).Rename(t.Context())
	coded, ok := errors.AsType[*job.Error](err)
	if !ok || !strings.Contains(coded.Message, foreign) || strings.Contains(coded.Message, taken) || !strings.Contains(coded.Hint, "it goes on") {
		t.Errorf("%v", err)
	}
	if m.db.Client.HGet(t.Context(), foreign, "x").Val() != "1" {
		t.Error("the foreign key was overwritten")
	}
	m.must(m.db.Client.Del(t.Context(), foreign).Err())
	m.must(m.moving(m.db.Client).Rename(t.Context()))
	if got := m.stands(m.new); got != before || !strings.Contains(got, "faults 0") {
		t.Errorf("%s\nwas\n%s", got, before)
	}
}
