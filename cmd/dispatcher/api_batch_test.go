package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"spillway/internal/remote"
	"spillway/internal/testkit"
)

func TestAPIShowsBatchesAPageAtATime(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, testkit.Redis(t), "amount: {field: amount, currency: currency}\n    replay: manual")
	for _, batch := range []string{"one", "two/2 %", "three"} {
		if got := a.post(`{"id":`+quoted(batch)[:4]+`","batch":`+quoted(batch)+`,"payload":{"amount":1050,"currency":"eur"}}`, ""); got.code != 202 {
			t.Fatal(got)
		}
	}
	var first, rest remote.BatchPage
	a.read("/v1/batches?limit=2", &first)
	if len(first.Batches) != 2 || first.Next == nil || first.Batches[0].Batch != "three" || first.Batches[1].Amount["EUR"].Int64() != 1050 {
		t.Fatalf("%+v", first)
	}
	a.read("/v1/batches?active=true&gateway="+a.gateway+"&after="+url.QueryEscape(*first.Next), &rest)
	if len(rest.Batches) != 1 || rest.Next != nil || rest.Batches[0].Batch != "one" {
		t.Fatalf("%+v", rest)
	}
	if got := a.ask(http.MethodGet, "/v1/batches/"+url.PathEscape("two/2 %"), "", nil); got.code != 200 {
		t.Errorf("%d %s", got.code, got.body)
	}
	for path, want := range map[string]string{"/v1/batches/none": "unknown_batch", "/v1/batches/one?gateway=none": "unknown_gateway", "/v1/batches?gateway=none": "unknown_gateway",
		"/v1/batches?limit=0": "invalid_request", "/v1/batches?limit=1001": "invalid_request", "/v1/batches?active=perhaps": "invalid_request", "/v1/batches?after=x": "invalid_request"} {
		if got := a.ask(http.MethodGet, path, "", nil); a.told(got.body).Code != want {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
}

func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// read gets a document and decodes it.
func (a *apiRig) read(path string, to any) {
	a.t.Helper()
	got := a.ask(http.MethodGet, path, "", nil)
	if err := json.Unmarshal([]byte(got.body), to); err != nil || got.code != 200 {
		a.t.Fatalf("%s: %d %s", path, got.code, got.body)
	}
}
