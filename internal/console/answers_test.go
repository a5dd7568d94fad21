package console

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// Answers to dead letters and to jobs in a back-off are counted by status, verdict and first words, with one job as an example. They contain no payload.
func TestAnswersAreCountedByWhatTheySay(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.put(7, `{"amount":500,"currency":"EUR","name":"Secret Person"}`)
	for i := range 4 {
		r.parkOne(fmt.Sprintf("j%04d", i), job.Refused, fmt.Sprintf(`HTTP 402: {"code":"card_declined","id":"ch_9%d4ac00"}`, i))
	}
	r.parkOne("j0004", job.UnknownOutcome, "time-out")
	books, rec := dispatch.Books(r.db.Client, r.g), r.record("j0005")
	a, _, err := books.Open(t.Context(), "j0005", rec.Generation, "worker", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	e := job.Ending{Called: true, Spent: true, Status: 503, Verdict: job.VerdictRetry, Error: "HTTP 503: busy", At: time.Now(), Took: 20 * time.Millisecond}
	if err := books.Back(t.Context(), a, e, time.Hour); err != nil {
		t.Fatal(err)
	}
	at := "/gateways/" + r.g.Name
	_, page := r.get(at)
	wants(t, page, at+"/answers")
	for _, query := range []string{"", "?batch=2026-11", "?since=1h"} {
		_, page = r.get(at + "/answers" + query)
		wants(t, page, `<b>4</b>`, "HTTP 402", "card_declined", "id&#34;:&#34;…&#34;", "j0003?", "HTTP 503: busy", "j0005?", "time-out", "j0004?")
		lacks(t, page, "j0006", "Secret", "ch_9", "there are more")
	}
	for _, query := range []string{"?batch=2026-12", "?since=" + url.QueryEscape(time.Now().Add(time.Hour).UTC().Format("2006-01-02 15:04:05"))} {
		_, page = r.get(at + "/answers" + query)
		lacks(t, page, "HTTP 402", "HTTP 503")
	}
	if status, _ := r.get(at + "/answers?since=nonsense"); status != 400 {
		t.Errorf("status %d", status)
	}
}
