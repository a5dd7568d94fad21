package producer

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// stripe has the routes refund and void; those of psp are charge, which is the usual one, and refund.
func stripe(gateway, route string) (string, error) {
	routes := map[string][]string{"stripe": {"", "refund", "void"}, "psp": {"charge", "refund"}}[gateway]
	switch {
	case route == "":
		return routes[0], nil
	case !slices.Contains(routes, route):
		return "", errors.New("no route " + route)
	}
	return route, nil
}

func TestRoutesOfLines(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		opt  Options
		text string
		want string // routes, or what is wrong, of each line
	}{
		"in the wrapped form": {Options{Gateway: "stripe"},
			`{"id":"a"}
{"id":"b","route":"refund"}
{"id":"c","route":null}
{"id":"d","route":""}
{"id":"e","route":"credit"}
{"id":"f","route":7}
{"id":"g","gateway":"psp"}
{"id":"h","gateway":"psp","route":"void"}`, `|refund|||no route credit|route must be a text in quotes|charge|no route void`},
		"the flag is for lines that name none": {Options{Gateway: "stripe", Route: "void"}, `{"id":"a"}
{"id":"b","route":"refund"}
{"id":"c","route":""}`, `void|refund|void`},
		"a field of the payload": {Options{Gateway: "stripe", IDField: "n", RouteField: "kind"}, `{"n":"a","kind":"refund"}
{"n":"b"}
{"n":"c","kind":null}
{"n":"d","kind":1}
{"n":"e","kind":"other"}`, `refund|||the field "kind" must be a text in quotes, the name of a route|no route other`},
		"a deeper field": {Options{Gateway: "stripe", IDField: "n", RouteField: "of.kind", Route: "void"}, `{"n":"a","of":{"kind":"refund"}}
{"n":"b","of":1}`, `refund|void`},
		"a column": {Options{Format: CSV, Gateway: "stripe", IDField: "n", RouteField: "kind"}, "n,kind\na,refund\nb,\nc,other\n", `refund||no route other`},
		"a column of a gateway with a usual route": {Options{Format: CSV, Gateway: "psp", IDField: "n"}, "n,kind\na,refund\n", `charge`},
		"a replacement": {Options{Gateway: "psp", Shown: true}, `{"id":"a","payload":{}}
{"id":"b","payload":{},"route":"refund"}`, `|refund`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.opt.RouteOf = stripe
			r, err := New(strings.NewReader(tc.text), tc.opt)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for {
				line, err := r.Next()
				if err == io.EOF {
					break
				}
				if line.Err != nil {
					got = append(got, line.Err.Error())
					continue
				}
				got = append(got, line.Job.Route)
			}
			if strings.Join(got, "|") != tc.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), tc.want)
			}
		})
	}
}

func TestRouteFieldsThatCantBe(t *testing.T) {
	t.Parallel()
	for want, opt := range map[string]Options{
		`only where the lines are the payloads is a field of them the route`:       {RouteField: "kind"},
		`line 1: the header row: no column is named "kind", as --route-field says`: {Format: CSV, IDField: "n", Gateway: "psp", RouteField: "kind"},
	} {
		if _, err := New(strings.NewReader("n,other\n"), opt); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
