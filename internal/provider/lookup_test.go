package provider

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// lookup looks a job up.
func (r rig) lookup(id string) (int, string) {
	r.t.Helper()
	status, _, body := r.do("GET", "/lookups/"+id, "", "")
	return status, body
}

// A look-up says what became of a job, and charges nothing.
func TestLookupsTellAndDoNotCharge(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{NoKeys: true})
	if status, body := r.lookup("inv-1"); status != 404 || !strings.Contains(body, "resource_missing") {
		t.Errorf("before the charge: %d %s", status, body)
	}
	r.charge("inv-0")
	r.charge("inv-1")
	if status, body := r.lookup("inv-1"); status != 200 || !strings.Contains(body, `{"id":"ch_2","job":"inv-1","status":"succeeded"}`) {
		t.Errorf("after it: %d %s", status, body)
	}
	s := r.Stats()
	if s.Calls != 2 || s.Charged != 2 || s.Lookups != 2 || s.LookupsFound != 1 || s.FirstCalls != 2 {
		t.Errorf("%+v", s)
	}
	if all := r.Calls(); len(all) != 4 || !all[0].Look || all[0].Key != "inv-1" || all[0].Status != 404 || all[1].Look {
		t.Errorf("%+v", all)
	}
	if status, _, _ := r.do("POST", "/lookups/inv-1", "inv-2", ""); status != 200 || r.Stats().Charged != 3 {
		t.Errorf("a POST to any path is a charge: %d", status)
	}
}

// A look-up lags, fails and hangs as configured, and an outage or an incident of the gateway also answers look-ups.
func TestLookupsHaveTroubles(t *testing.T) {
	t.Parallel()
	for want, c := range map[int]Config{
		404: {LookupLag: time.Hour},
		500: {LookupFail: 1},
		503: {Down: true},
		502: {Incident: Incident{Status: 502}},
		0:   {LookupHang: 1},
	} {
		r := setup(t, Config{})
		r.charge("inv-1")
		r.Set(c)
		if want == 0 {
			hurried := http.Client{Timeout: 200 * time.Millisecond}
			if resp, err := hurried.Get(r.url + "/lookups/inv-1"); err == nil {
				_ = resp.Body.Close()
				t.Errorf("hangs: %d", resp.StatusCode)
			}
			continue
		}
		if status, body := r.lookup("inv-1"); status != want {
			t.Errorf("%+v: %d %s", c, status, body)
		}
	}
	lags := setup(t, Config{LookupLag: 100 * time.Millisecond})
	lags.charge("inv-1")
	testkit.Eventually(t, time.Minute, "the lag to be over", func() bool {
		status, _ := lags.lookup("inv-1")
		return status == 200
	})
}

// Look-ups and charges use up one limit.
func TestLookupsAreCalls(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{Limits: []Limit{{N: 3, Window: time.Hour}}})
	r.charge("inv-1")
	for i, want := range []int{200, 200, 429} {
		if status, body := r.lookup("inv-1"); status != want {
			t.Errorf("look-up %d: %d %s", i+1, status, body)
		}
	}
	if status := r.charge("inv-2"); status != 429 {
		t.Errorf("a charge after them: %d", status)
	}
	if s := r.Stats(); s.TooMany != 2 || s.Over != 2 || fmt.Sprint(s.MaxInWindow) != "[5]" {
		t.Errorf("%+v", s)
	}
}
