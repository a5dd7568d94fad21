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
		`lanes: {}`:                                               `5:5: gateways.g.lanes.key: is missing: say what is a job's lane: payload.account for a field of its payload, or lane for what the job says itself`,
		`lanes: {key: account}`:                                   `5:18: gateways.g.lanes.key: "account" is not a lane's key: write payload.FIELD, or lane for what jobs say themselves`,
		`lanes: {key: payload.a..b}`:                              `5:18: gateways.g.lanes.key: "payload.a..b" is not a field: write its name, with dots between the levels, like amount or order.total`,
		`lanes: {key: lane, strip: true}`:                         `5:31: gateways.g.lanes.strip: jobs name their lane themselves, so their payloads don't have it: take strip out, or write key: payload.FIELD`,
		`lanes: {key: lane, header: {own: "{lane}"}}`:             `5:38: gateways.g.lanes.header.own: stands in request.headers too: keep one of them`,
		`lanes: {key: lane, header: {For: "lane"}}`:               `5:38: gateways.g.lanes.header.For: has no {lane}: write it as in Stripe-Account: "{lane}", or put the header into request.headers`,
		`routes: {r: {request: {headers: {For: "{lane}"}}}}`:      `5:43: gateways.g.routes.r.request.headers.For: takes the {lane} of a job, and the gateway has no lanes: write lanes: {key: payload.account}, say`,
		`lanes: {key: lane, max_in_flight: -1}`:                   `5:39: gateways.g.lanes.max_in_flight: "-1" is too small: give at least 0`,
		`answers: [{status: 429, then: hold, scope: lane}]`:       `5:48: gateways.g.answers[0].scope: the answer concerns a lane, and the gateway has none: write scope: gateway, or give it lanes, like lanes: {key: payload.account}`,
		`answers: [{status: 429, then: hold, scope: route}]`:      `5:48: gateways.g.answers[0].scope: the answer concerns a route, and the gateway has none: write scope: gateway, or give it routes`,
		`answers: [{status: 429, then: hold, scope: lanes}]`:      `5:48: gateways.g.answers[0].scope: "lanes" is not what an answer concerns: did you mean lane?`,
		`answers: [{status: 400, then: refused, scope: gateway}]`: `5:51: gateways.g.answers[0].scope: a scope says what is held, and the rule does not say hold: write then: hold, or take scope out`,
		`routes: {r: {request: {url: https://x.example/r}, answers: [{status: 429, then: hold, scope: lane}]}}`: `5:98: gateways.g.routes.r.answers.rules[0].scope: the answer concerns a lane, and the gateway has none: write scope: gateway, or give it lanes, like lanes: {key: payload.account}`,
		`routes: {r: {request: {url: https://x.example/r}, circuit: mine}}`:                                     `5:64: gateways.g.routes.r.circuit: "mine" is not a route's circuit: use one of own, account`,
	} {
		_, err := Parse("f.yaml", []byte(head+text+"\n"), Options{Secrets: true, Env: testEnv})
		if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:"+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// Answers can concern one lane or one route; a route's cap and circuit are its own.
func TestScopes(t *testing.T) {
	t.Parallel()
	g := parse(t, `
gateways:
  a: {request: {url: https://a.example/}, leak: {limits: [5/s]}, answers: [{status: [429, 403], then: hold, scope: lane}, {status: 503, then: hold}], lanes: {key: lane, max_in_flight: 2},
    routes: {refund: {request: {url: https://a.example/refunds}, max_in_flight: 8, answers: [{status: 429, then: hold, scope: route}]}}}
  b: {request: {url: https://b.example/}, leak: {limits: [5/s]}, routes: {refund: {request: {url: https://b.example/refunds}, circuit: own}, other: {circuit: account}}}
  c: {request: {url: https://c.example/}, leak: {limits: [5/s]}, answers: [{status: 429, then: hold, scope: lane}], lanes: {key: lane}, routes: {refund: {request: {url: https://c.example/r}}}}
`).Gateways
	var scopes []string
	for _, as := range g[0].Ways() {
		for _, rule := range as.Answers.Rules {
			scopes = append(scopes, string(rule.Scope))
		}
	}
	if !slices.Equal(scopes, []string{"lane", "lane", "", "route", "lane", "lane", ""}) {
		t.Errorf("scopes are %q", scopes)
	}
	if a := g[0]; a.Lanes.MaxInFlight != 2 || a.Routes[0].MaxInFlight != 8 || a.RouteCircuit("refund") {
		t.Errorf("%+v, %+v", a.Lanes, a.Routes[0])
	}
	if b := g[1]; !b.RouteCircuit("refund") || b.RouteCircuit("other") || b.RouteCircuit("") {
		t.Errorf("%+v", b.Routes)
	}
	for i, want := range []bool{true, true, false} {
		if got := g[i].Scoped(); got != want {
			t.Errorf("%s: routes can be held by themselves: %v", g[i].Name, got)
		}
	}
}
