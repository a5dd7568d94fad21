package outcome

import (
	"errors"
	"strings"
	"testing"

	"spillway/internal/job"
)

func TestReferenceIsReadFromSuccessesAlone(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		path, body, want string
		status           int
	}{
		{"id", `{"id":"pi_1"}`, "pi_1", 200},
		{"id", `{"id":12345678901234567890}`, "12345678901234567890", 200},
		{"charge.ref", `{"charge":{"ref":"r-9"}}`, "r-9", 201},
		{"ref", "ref=form-1&x=y", "form-1", 200},
		{"id", `{"id":"` + long + `"}`, long, 200},
		{"id", `{"id":"` + long + `x"}`, "", 200},
		{"id", `{"id":"a b"}`, "", 200},
		{"id", `{"id":"ü"}`, "", 200},
		{"id", `{"id":null}`, "", 200},
		{"id", `{"id":{"x":1}}`, "", 200},
		{"id", `OK`, "", 200},
		{"", `{"id":"pi_1"}`, "", 200},
		{"id", `{"id":"pi_1"}`, "", 402},
	} {
		j := Table{}.Referring(c.path).Judge(Input{Result: job.Result{Stage: job.Answered, Status: c.status, Body: []byte(c.body)}})
		if j.Reference != c.want {
			t.Errorf("%q of %s: %q, want %q", c.path, c.body, j.Reference, c.want)
		}
	}
	cut := job.Result{Stage: job.Answered, Status: 200, Body: []byte(`{"id":"pi`), Err: errors.New("cut off")}
	if j := (Table{}).Referring("id").Judge(Input{Result: cut}); j.Verdict != job.VerdictDone || j.Reference != "" {
		t.Errorf("an answer cut off: %+v", j)
	}
}
