package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"spillway/internal/job"
)

func TestLanes(t *testing.T) {
	t.Parallel()
	g := parse(t, `
gateways:
  a: {request: {url: https://a.example/}, leak: {limits: [5/s]}, lanes: {key: payload.account.id, strip: true, header: {Stripe-Account: "acct-{lane}"}},
    routes: {refund: {request: {url: https://a.example/refunds}}}}
  b: {request: {url: https://b.example/}, leak: {limits: [5/s]}, lanes: {key: lane}}
  c: {request: {url: https://c.example/}, leak: {limits: [5/s]}, lanes: {key: lane}, routes: {refund: {request: {headers: {For: "{lane}"}}}}}
  d: {request: {url: https://d.example/}, leak: {limits: [5/s]}}
`).Gateways
	for i, want := range []*job.LaneKey{{Field: "account.id", Required: true}, {}, {Required: true}, nil} {
		if got := g[i].LaneKey(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s has %+v, want %+v", g[i].Name, got, want)
		}
	}
	for name, as := range g[0].Ways() {
		if !slices.Equal(as.Request.Strip, []string{"account.id"}) || !reflect.DeepEqual(as.Request.JobHeaders, map[string][]HeaderPart{"Stripe-Account": {{Text: "acct-"}, {Place: "lane"}}}) {
			t.Errorf("route %q: %v, %v", name, as.Request.Strip, as.Request.JobHeaders)
		}
	}
}

func TestBadLanes(t *testing.T) {
	t.Parallel()
	const head = "gateways:\n  g:\n    request: {url: https://x.example/, headers: {Own: x}}\n    leak: {limits: [5/s]}\n    "
	for text, want := range map[string]string{
		`lanes: {}`:                                          `5:5: gateways.g.lanes.key: is missing: say what is a job's lane: payload.account for a field of its payload, or lane for what the job says itself`,
		`lanes: {key: account}`:                              `5:18: gateways.g.lanes.key: "account" is not a lane's key: write payload.FIELD, or lane for what jobs say themselves`,
		`lanes: {key: payload.a..b}`:                         `5:18: gateways.g.lanes.key: "payload.a..b" is not a field: write its name, with dots between the levels, like amount or order.total`,
		`lanes: {key: lane, strip: true}`:                    `5:31: gateways.g.lanes.strip: jobs name their lane themselves, so their payloads don't have it: take strip out, or write key: payload.FIELD`,
		`lanes: {key: lane, header: {own: "{lane}"}}`:        `5:38: gateways.g.lanes.header.own: stands in request.headers too: keep one of them`,
		`lanes: {key: lane, header: {For: "lane"}}`:          `5:38: gateways.g.lanes.header.For: has no {lane}: write it as in Stripe-Account: "{lane}", or put the header into request.headers`,
		`routes: {r: {request: {headers: {For: "{lane}"}}}}`: `5:43: gateways.g.routes.r.request.headers.For: takes the {lane} of a job, and the gateway has no lanes: write lanes: {key: payload.account}, say`,
	} {
		_, err := Parse("f.yaml", []byte(head+text+"\n"), Options{Secrets: true, Env: testEnv})
		if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:"+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}
