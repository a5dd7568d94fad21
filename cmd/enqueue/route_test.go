package main

import (
	"strings"
	"testing"
)

const routesOfG = `routes: {refund: {request: {url: "https://pay.example/refunds/{id}", method: PUT}}}`

// The route of a job comes from its line, a column, or --route. A line with an unknown route is invalid.
func TestRoutesOfAFile(t *testing.T) {
	b := setup(t, place{more: routesOfG})
	b.write("a.ndjson", `{"id":"a"}
{"id":"b","route":"refund"}
{"id":"c","route":"refnud"}
{"id":"d","route":"refund","gateway":"`+b.g2+`"}
`)
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "-q"), result{3, counts(4, 2, 0, 0, 2, 0),
		`line 3: gateway G has no route "refnud": it has refund; did you mean refund?` + "\n" +
			`line 4: route "refund": gateway ` + b.g2 + " has no routes: leave the route out, or add it to the configuration\n" +
			"enqueue: 2 of 4 lines could not be used\nhint: mend them and enqueue them again; --rejects FILE collects them\n"})
	b.write("b.csv", "n,kind\ne,refund\nf,\n")
	b.want(b.run("-g", b.g, "-f", "b.csv", "--id-field", "n", "--route-field", "kind", "-o", "json", "-q"), result{0, counts(2, 2, 0, 0, 0, 0), ""})
	b.write("c.ndjson", `{"id":"g"}`)
	b.want(b.run("-g", b.g, "-f", "c.ndjson", "--route", "refund", "-o", "json", "-q"), result{0, counts(1, 1, 0, 0, 0, 0), ""})
	for id, route := range map[string]string{"a": "", "b": "refund", "e": "refund", "f": "", "g": "refund"} {
		if r := b.record(b.g, id); r.Job.Route != route {
			t.Errorf("%s has the route %q, want %q", id, r.Job.Route, route)
		}
	}
	b.write("c.ndjson", `{"id":"g"}`)
	b.want(b.run("-g", b.g, "-f", "c.ndjson", "-o", "json", "-q"), result{3, counts(1, 0, 0, 0, 1, 0),
		"line 1: this id is known with another route or lane of the gateway: the first one stands; give this job an id of its own\n" +
			"enqueue: 1 of 1 lines could not be used\nhint: mend them and enqueue them again; --rejects FILE collects them\n"})
}

// A dry run shows the method and the URL of each job's route.
func TestADryRunShowsRoutes(t *testing.T) {
	b := setup(t, place{more: routesOfG})
	b.write("a.ndjson", `{"id":"a"}`+"\n"+`{"id":"b","route":"refund"}`)
	got := b.run("-g", b.g, "-f", "a.ndjson", "--dry-run", "--show", "2")
	for _, want := range []string{b.g + ": job a: POST https://pay.example/{id}\n", b.g + ": job b: PUT https://pay.example/refunds/{id}\n"} {
		if !strings.Contains(got.out+got.err, want) {
			t.Errorf("%s%s\nwant %s", got.out, got.err, want)
		}
	}
}
