package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// A job whose admission was carried out, but whose answer was lost, is reported with its outcome, and not as a duplicate.
func TestALostAnswerIsToldAgain(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [100/s]}\nadmission: {limits: [1/h], burst: 300}")
	line := testkit.LineTo(t, strings.TrimSuffix(strings.TrimPrefix(testkit.Redis(t), "redis://"), "/0"))
	db, err := redisdb.Open(t.Context(), "redis://"+line.Addr()+"/0", redisdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	door := Door(db.Client, r.cfg, 30*time.Second)
	if _, err := door.Admit(t.Context(), r.cfg.Gateways[0].Name, []job.Job{{ID: "first", Cost: 1}}, admission.Park); err != nil {
		t.Fatal(err) // the script is known from here on, and the gateway is in the register
	}
	jobs := make([]job.Job, 500)
	for i := range jobs {
		jobs[i] = job.Job{ID: fmt.Sprintf("line-%d", i), Cost: 1}
	}
	type told struct {
		answers []admission.Answer
		err     error
	}
	said := make(chan told, 1)
	line.LoseAnswers(true)
	go func() {
		answers, err := door.Admit(t.Context(), r.cfg.Gateways[0].Name, jobs, admission.Park)
		said <- told{answers, err}
	}()
	testkit.Eventually(t, 10*time.Second, "the jobs to be in", func() bool { return r.standing(0).Accepted == 501 })
	line.LoseAnswers(false)
	got := <-said
	if got.err != nil {
		t.Fatal(got.err)
	}
	for i, a := range got.answers {
		if want := map[bool]job.Admittance{true: job.Enqueued, false: job.ParkedNow}[i < 299]; a.Outcome != want {
			t.Fatalf("job %d of 500, with room for 299: %s", i, a.Outcome)
		}
	}
}
