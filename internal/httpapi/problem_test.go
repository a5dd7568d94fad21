package httpapi

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

func TestEveryErrorHasItsStatus(t *testing.T) {
	t.Parallel()
	want := map[job.Code]int{job.CodeFailed: 500, job.CodeUsage: 400, job.CodeInvalid: 400, job.CodeNotFound: 404,
		job.CodeUnavailable: 503, job.CodeInterrupted: 503}
	for _, c := range job.Codes() {
		p := problemOf(&job.Error{Code: c, Message: "what", Hint: "do", Err: errors.New("10.0.0.1 said no")})
		if p.Status != want[c] || p.Title != http.StatusText(want[c]) || p.Detail != "what" || p.Hint != "do" {
			t.Errorf("%s: %+v", c, p)
		}
		if (p.Status == 503) != (p.RetryAfter > 0) {
			t.Errorf("%s: come again after %d", c, p.RetryAfter)
		}
	}
	if p := problemOf(errors.New("payload 4242 at 10.0.0.1")); p.Status != 500 || strings.Contains(p.Detail+p.Hint, "4242") {
		t.Errorf("%+v", p)
	}
}

func TestRetryAfterIsNeverTooSoon(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		room job.Room
		want int64
	}{
		{job.Room{Retry: time.Millisecond}, 1},
		{job.Room{Retry: 1001 * time.Millisecond}, 2},
		{job.Room{Retry: 2 * time.Hour}, 7200},
		{job.Room{Retry: 0, Reset: 0}, 1}, // behind parked jobs
		{job.Room{Retry: 0, Reset: 7 * time.Second}, 7},
		{job.Room{Retry: 0, Reset: time.Hour}, 60},
		{job.Room{Retry: -1}, 60},
	} {
		if got := seconds(retryAfter(c.room)); got != c.want {
			t.Errorf("%+v: %d, want %d", c.room, got, c.want)
		}
	}
}
