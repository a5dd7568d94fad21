package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// If no more jobs may be parked, the answer is 429 with the reason, for one job and for many. A known job is still a duplicate.
func TestPostedJobsBeyondTheParkedOnesAreTooMany(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, "", "admission: {limits: [1/h], burst: 1}\n    parked: {most: 2}")
	for id, want := range []int{202, 202, 202, 429, 429} {
		got := a.post(fmt.Sprintf(`{"id":"j%d"}`, id), "?on_full=park")
		v := a.told(got.body)
		if got.code != want || want == 429 && (v.Code != "no_room" || !strings.Contains(v.Detail, "2 jobs are parked") || v.Retry != 60 || got.header.Get("Retry-After") != "60") {
			t.Errorf("j%d: %d, %s", id, got.code, got.body)
		}
	}
	if got := a.post(`{"id":"j2"}`, "?on_full=park"); got.code != http.StatusOK {
		t.Errorf("a known job: %d, %s", got.code, got.body)
	}
	many := a.ask(http.MethodPost, a.jobs("?on_full=park"), asNDJSONType, strings.NewReader("{\"id\":\"j2\"}\n{\"id\":\"j7\"}\n{\"id\":\"j1\"}\n"))
	a.holdLines(many.body)
	if says := a.lines(many.body); len(says) != 3 || says[0].Result != "duplicate" || says[1].Status != 429 || !strings.Contains(says[1].Detail, "parked") || says[2].Result != "duplicate" {
		t.Errorf("many jobs: %d, %s", many.code, many.body)
	}
}

// Another program has overwritten a key of one job. The answer to that job names the key; the other jobs are accepted.
func TestADamagedKeyStopsItsOwnJobOnly(t *testing.T) {
	t.Parallel()
	for name, damaged := range map[string]struct {
		key  func(redisdb.Keys) string
		line string
	}{
		"record":        {func(k redisdb.Keys) string { return k.Job("x") }, `{"id":"x"}`},
		"of another id": {func(k redisdb.Keys) string { return k.Job("x") }, `{"id":"x~2"}`},
		"batch":         {func(k redisdb.Keys) string { return k.Batch("b") }, `{"id":"x","batch":"b"}`},
		"ids of batch":  {func(k redisdb.Keys) string { return k.BatchIDs("b") }, `{"id":"x","batch":"b"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []string{"string", "set"} {
				a := newAPIRig(t, "", "")
				key, c := damaged.key(redisdb.NewKeys(a.gateway)), a.c
				err := c.SAdd(t.Context(), key, "y").Err()
				if kind == "string" {
					err = c.Set(t.Context(), key, "y", 0).Err()
				}
				if err != nil {
					t.Fatal(err)
				}
				alone := a.post(damaged.line, "")
				if v := a.told(alone.body); alone.code != 500 || v.Code != "failed" || !strings.Contains(v.Detail, key) {
					t.Errorf("%s, alone: %d, %s", kind, alone.code, alone.body)
				}
				many := a.bulk("{\"id\":\"g1\"}\n" + damaged.line + "\n{\"id\":\"g2\",\"batch\":\"c\"}\n")
				a.holdLines(many.body)
				if v := a.lines(many.body); many.code != 202 || len(v) != 3 || v[0].Status != 202 || v[1].Status != 500 || !strings.Contains(v[1].Detail, key) || v[2].Status != 202 {
					t.Errorf("%s, many: %d, %s", kind, many.code, many.body)
				}
				if n := c.LLen(t.Context(), redisdb.NewKeys(a.gateway).Pending()).Val(); n != 2 {
					t.Errorf("%s: %d jobs are in the queue", kind, n)
				}
			}
		})
	}
}

// With dedupe_scope all, a job that another gateway knows is a duplicate, and the answer names that gateway.
func TestAPINamesTheGatewayThatKnowsAJob(t *testing.T) {
	t.Parallel()
	other := testkit.Gateway(t)
	a := newAPIRig(t, "", roomForThree+"\n  "+other+": {request: {url: \"https://other.example\", idempotency_prefix: o-}, leak: {limits: [1/s]}}\ndedupe_scope: all")
	if got := a.ask("POST", "/v1/gateways/"+other+"/jobs", "application/json", strings.NewReader(`{"id":"x"}`)); got.code != 202 {
		t.Fatalf("%d %s", got.code, got.body)
	}
	got := a.post(`{"id":"x"}`, "")
	if want := fmt.Sprintf(`{"id":"x","gateway":%q,"result":"duplicate","state":"queued","known_at":%q}`, a.gateway, other); got.code != 200 ||
		strings.TrimSpace(got.body) != want || got.header.Get("Location") != "/v1/gateways/"+other+"/jobs/x" {
		t.Errorf("%d %s\n%s\nwant %s", got.code, got.header.Get("Location"), got.body, want)
	}
	if got := a.post(`{"id":"x","payload":{"n":2}}`, ""); got.code != 409 || !strings.Contains(got.body, "known at gateway "+other) {
		t.Errorf("another payload: %d %s", got.code, got.body)
	}
	if got := a.bulk("{\"id\":\"x\"}\n{\"id\":\"y\"}\n"); got.code != 202 || !strings.Contains(got.body, fmt.Sprintf(`"result":"duplicate","known_at":%q`, other)) {
		t.Errorf("many: %d %s", got.code, got.body)
	}
}
