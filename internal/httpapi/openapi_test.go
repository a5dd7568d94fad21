package httpapi

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"spillway/internal/roles"
	"spillway/internal/testkit"
)

func description(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestTheDescriptionIsOpenAPI(t *testing.T) {
	t.Parallel()
	doc := description(t)
	if err := doc.Validate(t.Context()); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("version %s: %v", doc.OpenAPI, err)
	}
}

// Each route and method is described, and nothing else. Those that need no token say so.
func TestTheDescriptionIsThatOfTheRoutes(t *testing.T) {
	t.Parallel()
	doc, served := description(t), map[string]bool{}
	for _, r := range New(Config{}).routes() {
		if len(r.by) == 0 {
			continue // all other paths below: nothing is there
		}
		served[r.path] = true
		item := doc.Paths.Value(r.path)
		if item == nil {
			t.Errorf("%s is not described", r.path)
			continue
		}
		methods := slices.Sorted(maps.Keys(r.by))
		if described := slices.Sorted(maps.Keys(item.Operations())); !slices.Equal(methods, described) {
			t.Errorf("%s answers %v, and %v are described", r.path, methods, described)
		}
		for method, op := range item.Operations() {
			free := op.Security != nil && len(*op.Security) == 0
			if free != (r.who.need == roles.Nothing) || op.Responses.Value("401") == nil != free || op.Responses.Value("405") == nil {
				t.Errorf("%s %s: described as free: %v", method, r.path, free)
			}
			if op.Extensions["x-role"] != r.who.need.String() {
				t.Errorf("%s %s needs the role %s, and %v is described", method, r.path, r.who.need, op.Extensions["x-role"])
			}
		}
	}
	for path, item := range doc.Paths.Map() {
		if !served[path] && !ofTheTable(item) {
			t.Errorf("%s is described and not served", path)
		}
	}
}

// ofTheTable reports whether a path has operations that the dispatcher passes in. The tests of the dispatcher compare those with the description.
func ofTheTable(item *openapi3.PathItem) bool {
	for _, op := range item.Operations() {
		if op.Extensions["x-commands"] == nil {
			return false
		}
	}
	return true
}

func TestTheDescriptionHasEveryCode(t *testing.T) {
	t.Parallel()
	var described []string
	for _, c := range description(t).Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		described = append(described, c.(string))
	}
	slices.Sort(described)
	var known []string
	for c := range statuses {
		known = append(known, string(c))
	}
	slices.Sort(known)
	if !slices.Equal(known, described) {
		t.Errorf("codes %v, described %v", known, described)
	}
}

// Each field of the answers is described.
func TestTheDescriptionHasEveryField(t *testing.T) {
	t.Parallel()
	testkit.Described(t, openapi, "Taken", taken{})
	testkit.Described(t, openapi, "Problem", problem{})
}
