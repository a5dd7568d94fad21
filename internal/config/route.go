package config

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

// mostRoutes is the most routes of a gateway.
const mostRoutes = 32

// Route is a named request of a gateway. Its jobs are called differently, under the same limits and possibly
// further ones. Settings that it lacks are inherited from the gateway.
type Route struct {
	// Name is 1 or more of a-z, 0-9, _ and -, and begins with a letter or digit.
	Name string
	// At is where the file names it, for messages.
	At Position
	// Request says how to call its jobs. It may have its own URL, method, encoding, strip and headers; the rest
	// is the gateway's.
	Request Request
	// Answers says what its answers mean. Its own rules precede the gateway's.
	Answers Answers
	// Lookup says how to look up its payments. nil = no look-ups.
	Lookup *Lookup
	// Reference is like Gateway.Reference, for its answers.
	Reference string
	// Limits all apply to its calls, in every rolling window, besides the gateway's. Empty (default): only the
	// gateway's.
	Limits []job.Limit
	// MaxInFlight is the most of its calls in flight, over all processes. 0 (default) = no cap of its own.
	MaxInFlight int64
	// Circuit says that its failures open a circuit of its own, and say nothing about other routes. Default:
	// they count for the gateway.
	Circuit bool
}

// How a route's failures count.
const (
	circuitOwn     = "own"
	circuitAccount = "account"
)

// RouteCircuit reports whether a route has its own circuit.
func (g Gateway) RouteCircuit(name string) bool {
	return slices.ContainsFunc(g.Routes, func(r Route) bool { return r.Name == name && r.Circuit })
}

// Scoped reports whether routes can be held individually: by the scope of an answer, or by a route's own
// circuit.
func (g Gateway) Scoped() bool {
	for name, as := range g.Ways() {
		if g.RouteCircuit(name) || slices.ContainsFunc(as.Answers.Rules, func(r job.Rule) bool { return r.Scope == job.ScopeRoute }) {
			return true
		}
	}
	return false
}

// RouteNames returns the names of the gateway's routes in file order.
func (g Gateway) RouteNames() []string {
	names := make([]string, len(g.Routes))
	for i, r := range g.Routes {
		names[i] = r.Name
	}
	return names
}

// Route returns the route of a job that names this one; the empty name is the gateway's own request. If the
// gateway has no request of its own, a job that names none takes the first route. The error for an unknown name
// says what to do.
func (g Gateway) Route(name string) (string, error) {
	switch {
	case name == "" && g.Routed && len(g.Routes) > 0:
		return g.Routes[0].Name, nil
	case name == "" || slices.Contains(g.RouteNames(), name):
		return name, nil
	case len(g.Routes) == 0:
		return "", fmt.Errorf("route %q: gateway %s has no routes: leave the route out, or add it to the configuration", name, g.Name)
	}
	return "", fmt.Errorf("gateway %s has no route %q: it has %s%s", g.Name, name, strings.Join(g.RouteNames(), ", "), job.DidYouMean(name, "", g.RouteNames()))
}

// On returns the gateway as seen by the jobs of a route; the empty name is as in Route. ok is false if it has
// no such route.
func (g Gateway) On(name string) (as Gateway, ok bool) {
	name, err := g.Route(name)
	if err != nil {
		return Gateway{}, false
	}
	if i := slices.IndexFunc(g.Routes, func(r Route) bool { return r.Name == name }); i >= 0 {
		r := g.Routes[i]
		g.Request, g.Answers, g.Lookup, g.Reference = r.Request, r.Answers, r.Lookup, r.Reference
	}
	g.Routes, g.Routed = nil, false
	return g, true
}

// Own returns the gateway as seen by jobs that name no route.
func (g Gateway) Own() Gateway {
	own, _ := g.On("")
	return own
}

// Ways yields each way in which the gateway's jobs are called, with the gateway as On returns it: first for
// jobs that name no route, with the empty name, then for each route.
func (g Gateway) Ways() iter.Seq2[string, Gateway] {
	return func(yield func(string, Gateway) bool) {
		for _, name := range slices.Insert(g.RouteNames(), 0, "") {
			if as, ok := g.On(name); ok && !yield(name, as) {
				return
			}
		}
	}
}

// Asked reports whether the gateway has look-ups for some of its payments.
func (g Gateway) Asked() bool {
	for _, as := range g.Ways() {
		if as.Lookup != nil {
			return true
		}
	}
	return false
}

// routes reads the routes of a gateway, whose other keys have been read. Faults of those keys, which begin at
// index from, are not reported again.
func (r *reader) routes(n, gateway node, from int) (all []Route) {
	entries := r.entries(n)
	if len(entries) == 0 && !r.faulted[n.path] {
		r.fault(n.path, "there are no routes: name at least one, like refund: {request: {url: https://api.example.com/v1/refunds}}, or take the line out")
	}
	if len(entries) > mostRoutes {
		r.fault(n.path, "%d routes are too many: give at most %d", len(entries), mostRoutes)
		return nil
	}
	said := r.faults[from:]
	for _, e := range entries {
		if !gatewayName.MatchString(e.key) {
			r.places[e.value.path] = e.at
			r.fault(e.value.path, "%q is not a route's name: use lower-case letters, digits, _ and -, starting with a letter or digit", e.key)
			continue
		}
		own := r.ofRoute(e.value)
		if r.faulted[e.value.path] {
			continue
		}
		for _, key := range []string{"limits", "max_in_flight", "circuit"} {
			e.value.tree = without(e.value.tree, key)
		}
		route := r.route(e, gateway, said)
		route.Limits, route.MaxInFlight, route.Circuit = own.Limits, own.MaxInFlight, own.Circuit
		all = append(all, route)
	}
	return all
}

// ofRoute checks that a route has only permitted keys, and returns its limits.
func (r *reader) ofRoute(n node) (own Route) {
	circuit := ""
	read := func(node) {}
	faults := len(r.faults)
	r.object(n,
		field{"request", func(n node) {
			r.object(n, field{"url", read}, field{"method", read}, field{"encoding", read}, field{"strip", read}, field{"headers", read})
		}},
		field{"answers", func(n node) {
			if isMapping(n.tree) {
				r.object(n, field{"profile", read}, field{"rules", read}, field{"done_needs", read}, field{"matches", read})
			}
		}},
		field{"lookup", func(n node) {
			if isMapping(n.tree) {
				r.object(n, field{"url", read}, field{"method", read}, field{"body", read}, field{"schedule", read}, field{"scan", read}, field{"matches", read},
					field{"answers", read}, field{"accepted", read})
			}
		}},
		field{"reference", read},
		field{"limits", r.limits(&own.Limits)},
		field{"max_in_flight", r.count(&own.MaxInFlight, 0, job.MaxCount)},
		field{"circuit", r.word(&circuit, choice("a route's circuit", circuitOwn, circuitAccount))},
	)
	own.Circuit = circuit == circuitOwn
	r.faulted[n.path] = r.faulted[n.path] || len(r.faults) > faults
	return own
}

// route reads one route as a gateway with its keys merged over the gateway's.
func (r *reader) route(e entry, gateway node, said Faults) Route {
	side, to := r.aside(), r.aside()
	side.opt.written, side.ofARoute = nil, true
	to.places[e.value.path], to.files = e.at, r.files
	tree := over(bodyless(without(gateway.tree, "routes"), e.value.tree), rulesAbove(gateway.tree, e.value.tree))
	g := side.only(to, *r.subject, node{tree: tree, path: e.value.path})
	r.files = to.files
	for _, fault := range to.faults {
		if ownOfRoute.MatchString(strings.TrimPrefix(fault.Field, e.value.path)) && !slices.ContainsFunc(said, func(f *Fault) bool { return f.Position == fault.Position }) {
			r.faults, r.faulted[e.value.path] = append(r.faults, fault), true
		}
	}
	return Route{Name: e.key, At: e.at, Request: g.Request, Answers: g.Answers, Lookup: g.Lookup, Reference: g.Reference}
}

// bodyless returns a gateway's keys without those on bodies, if the route's calls have none.
func bodyless(gateway, route ast.Node) ast.Node {
	request := valueOf(gateway, "request")
	if method, _ := raw(node{tree: valueOf(valueOf(route, "request"), "method")}); !bodiless(method) || request == nil {
		return gateway
	}
	return over(without(gateway, "request"), single(keyNode(gateway, "request"), without(without(request, "encoding"), "strip")))
}

// ownOfRoute matches the keys of a gateway that a route may have.
var ownOfRoute = regexp.MustCompile(`^\.(request|answers|lookup|reference)\b`)

// rulesAbove returns a route's keys with the gateway's rules on answers after its own.
func rulesAbove(gateway, route ast.Node) ast.Node {
	answers := valueOf(route, "answers")
	if answers == nil {
		return route
	}
	theirs, ours := answersOf(valueOf(gateway, "answers")), answersOf(answers)
	if below, ok := valueOf(theirs, "rules").(*ast.SequenceNode); ok {
		if above, ok := valueOf(ours, "rules").(*ast.SequenceNode); ok {
			both := &ast.SequenceNode{Values: slices.Concat(above.Values, below.Values)}
			ours = over(ours, single(keyNode(ours, "rules"), both))
		}
	}
	return over(route, single(keyNode(route, "answers"), over(theirs, ours)))
}

// answersOf returns answers as a mapping, in whatever form they are written.
func answersOf(tree ast.Node) ast.Node {
	switch tree.(type) {
	case nil, *ast.MappingNode, *ast.MappingValueNode:
		return tree
	case *ast.SequenceNode:
		return single(newCell("rules", Position{}), tree)
	}
	return single(newCell("profile", Position{}), tree)
}
