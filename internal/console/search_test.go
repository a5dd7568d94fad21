package console

import (
	"fmt"
	"net/url"
	"regexp"
	"testing"

	"spillway/internal/admission"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

var foundJob = regexp.MustCompile(`<th scope="row" class="id"><a href="[^"]*">([^<]*)</a>`)

// A star behind the beginning of an id finds the jobs whose ids begin so, page by page, and nothing that only looks like it.
func TestJobsAreFoundByTheBeginningOfTheirIDs(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	var jobs []job.Job
	for i := range 2500 {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("inv-%04d", i), Gateway: r.g.Name, Payload: []byte("{}"), Cost: 1})
	}
	for _, id := range []string{"a?b-1", "a?b-2", "axb-3", "[inv]"} {
		jobs = append(jobs, job.Job{ID: id, Gateway: r.g.Name, Payload: []byte("{}"), Cost: 1})
	}
	if _, err := dispatch.Door(r.db.Client, r.cfg, 0).Admit(t.Context(), r.g.Name, jobs, admission.Park); err != nil {
		t.Fatal(err)
	}
	// all follows the pages of a search to its end.
	all := func(typed string) map[string]bool {
		found, at := map[string]bool{}, "/jobs?"+url.Values{"id": {typed}}.Encode()
		for range 1000 {
			status, page := r.get(at)
			if status != 200 {
				t.Fatalf("%s: status %d", at, status)
			}
			for _, m := range foundJob.FindAllStringSubmatch(page, -1) {
				found[m[1]] = true
			}
			more := regexp.MustCompile(`class="button" href="(/jobs[^"]*)">Go on`).FindStringSubmatch(page)
			if more == nil {
				wants(t, page, "All keys of Redis were looked at")
				return found
			}
			wants(t, page, "The search stopped here")
			at = regexp.MustCompile("&amp;").ReplaceAllString(more[1], "&")
		}
		t.Fatal("the search does not end")
		return nil
	}
	for typed, want := range map[string]int{"inv-*": 2500, "inv-00*": 100, "a?b*": 2, "[*": 1, "INV*": 0, "nobody*": 0, "inv-2499*": 1} {
		if got := all(typed); len(got) != want {
			t.Errorf("%s finds %d jobs, want %d", typed, len(got), want)
		}
	}
	for _, wrong := range []string{"x", "0-1x", "-1-0"} {
		if status, _ := r.get("/jobs?id=inv-%2A&after=" + wrong); status != 400 {
			t.Errorf("after=%s: status %d", wrong, status)
		}
	}
	if status, _ := r.get("/jobs?id=inv"); status != 404 {
		t.Errorf("without a star it is an id: status %d", status)
	}
}
