package main

import (
	"net/http"
	"strings"
	"testing"

	"spillway/internal/desk"
	"spillway/internal/doctor"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

func TestProcessesSaysWhoServes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.configure(testkit.Server(t).URL())
	r.expect(r.command("processes"), 0, "", "no dispatcher serves: start one with \"dispatcher run\"\n")
	r.expect(r.command("processes", "-o", "json"), 0, `{"processes":[]}`+"\n", "")
	db, err := redisdb.Open(t.Context(), string(r.cfg.Redis), redisdb.Options{})
	r.must(err)
	t.Cleanup(func() { _ = db.Close() })
	for name, version := range map[string]string{"b.1": "v1", "a.1": "v2"} {
		r.must(redisdb.Serve(t.Context(), db.Client, name, redisdb.Serving{Version: version, Gateways: 2, Chosen: []string{"x", "y"}, Calls: 5}))
	}
	got := r.command("processes")
	r.expect(got, 0, "a.1\tserving\tTIME\t\t2\tx, y\t5\t\t\tv2\nb.1\tserving\tTIME\t\t2\tx, y\t5\t\t\tv1\n", "2 versions serve at once: v1; v2\n")
}

func TestAPIShowsWhoServesAndWhatDoctorFinds(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, testkit.Server(t).URL(), "replay: manual")
	if err := redisdb.Serve(t.Context(), a.c, "a.1", redisdb.Serving{Version: "v1", Gateways: 1}); err != nil {
		t.Fatal(err)
	}
	var who desk.Processes
	a.read("/v1/processes", &who)
	if len(who.List) != 1 || who.List[0].State != desk.ProcessServing {
		t.Errorf("%+v", who)
	}
	var found doctor.Examined
	a.read("/v1/doctor", &found)
	if found.At.IsZero() || len(found.Checks) == 0 {
		t.Errorf("%+v", found)
	}
	for _, path := range []string{"/v1/processes", "/v1/doctor"} {
		if got := a.ask(http.MethodPost, path, "{}", nil); a.told(got.body).Code != "method_not_allowed" {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if strings.Contains(a.all.String(), apiToken) {
		t.Error("an answer has the token")
	}
}
