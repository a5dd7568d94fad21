package console

import (
	"fmt"
	"net/url"
	"regexp"
	"testing"

	"spillway/internal/admission"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// setupAlone is setup with a database of its own: a search reads all keys of a database within a few seconds.
func setupAlone(t *testing.T, s setting) *rig {
	t.Helper()
	url, _ := testkit.Database(t)
	return setupAt(t, url, s)
}

var foundJob = regexp.MustCompile(`<th role="rowheader" scope="row" class="id"><a href="[^"]*">([^<]*)</a>`)

// A star after the beginning of an id finds the jobs whose ids begin with it, on several pages. Other characters have no special meaning.
func TestJobsAreFoundByTheBeginningOfTheirIDs(t *testing.T) {
	t.Parallel()
	r := setupAlone(t, setting{})
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
	// all follows the pages of a search to the last one, and returns the ids.
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

// A search of payloads is a POST form. Neither a URL nor the log contains what was searched for, and no page shows a payload.
func TestPayloadsAreSearched(t *testing.T) {
	t.Parallel()
	r := setupAlone(t, setting{})
	r.put(3, `{"amount":500,"currency":"EUR","customer":"CANARY-1"}`)
	_, page := r.get("/search")
	wants(t, page, `action="/search" method="post"`)
	lacks(t, page, "All keys of Redis")
	form := url.Values{"field": {"payload.customer"}, "value": {"CANARY-1"}, "id": {"j000*"}, "gateway": {r.g.Name}}
	status, page := r.post("/search", form)
	if status != 200 || len(foundJob.FindAllStringSubmatch(page, -1)) != 3 {
		t.Errorf("status %d:\n%s", status, page)
	}
	wants(t, page, "EUR 5.00", "2026-11", "queued", "All keys of Redis were looked at")
	form.Set("value", "CANARY-2")
	_, page = r.post("/search", form)
	wants(t, page, "No such job.")
	for field, value := range map[string]string{"field": "customer", "gateway": "nobody", "after": "x"} {
		wrong := url.Values{"field": {"payload.customer"}, "value": {"CANARY-1"}}
		wrong.Set(field, value)
		if status, _ := r.post("/search", wrong); status != 400 && status != 404 {
			t.Errorf("%s=%s: status %d", field, value, status)
		}
	}
	if status, _ := r.post("/search", url.Values{}); status != 400 {
		t.Errorf("nothing is searched for: status %d", status)
	}
	lacks(t, r.log.String(), "CANARY")
}

// Sealed payloads can't be searched without their key, and the page says so.
func TestASealedPayloadIsSearchedByWhoHasTheKey(t *testing.T) {
	t.Parallel()
	r := setupAt(t, testkit.Server(t).URL(), setting{})
	r.encrypt("k1", "a")
	r.put(2, `{"amount":500,"currency":"EUR","customer":"CANARY"}`)
	form := url.Values{"field": {"payload.customer"}, "value": {"CANARY"}}
	if _, page := r.post("/search", form); len(foundJob.FindAllStringSubmatch(page, -1)) != 2 {
		t.Errorf("with the key:\n%s", page)
	}
	r.encrypt("k2", "b")
	_, page := r.post("/search", form)
	wants(t, page, "No such job.", "The payloads of 2 jobs can’t be read")
}
