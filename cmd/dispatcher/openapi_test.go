package main

import (
	"net/http/httptest"
	"testing"

	"spillway/internal/desk"
	"spillway/internal/doctor"
	"spillway/internal/feed"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// What "job" and "status" print is what the API answers, and /openapi.json describes it to the last field. The payload is never in it.
func TestTheAnswersOfTheAPIAreDescribed(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	httpapi.New(httpapi.Config{}).ServeHTTP(answer, httptest.NewRequest("GET", "http://127.0.0.1/openapi.json", nil))
	testkit.Described(t, answer.Body.Bytes(), "JobView", desk.Job{})
	testkit.Described(t, answer.Body.Bytes(), "Status", statusDocument{})
	testkit.Described(t, answer.Body.Bytes(), "Batches", batchesDocument{})
	testkit.Described(t, answer.Body.Bytes(), "Batch", desk.Batch{})
	testkit.Described(t, answer.Body.Bytes(), "CallHistory", desk.CallHistory{})
	testkit.Described(t, answer.Body.Bytes(), "Answers", desk.Answers{})
	testkit.Described(t, answer.Body.Bytes(), "Processes", desk.Processes{})
	testkit.Described(t, answer.Body.Bytes(), "Examined", doctor.Examined{})
	testkit.Described(t, answer.Body.Bytes(), "JobHits", desk.JobHits{})
	testkit.Described(t, answer.Body.Bytes(), "Search", httpapi.SearchQuery{})
	testkit.Described(t, answer.Body.Bytes(), "Outcome", feed.Outcome{})
	testkit.Described(t, answer.Body.Bytes(), "Acked", feed.Acked{})
	testkit.Listed(t, answer.Body.Bytes(), "JobView", "reason", job.Reasons())
}
