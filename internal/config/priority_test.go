package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"spillway/internal/job"
)

func TestPriority(t *testing.T) {
	t.Parallel()
	g := parse(t, `
gateways:
  a: {request: {url: https://a.example/}, leak: {limits: [5/s]}, priority: {classes: [urgent, normal, batch], default: normal, floors: {batch: 5%}}}
  b: {request: {url: https://b.example/}, leak: {limits: [5/s]}}
`).Gateways
	a, b := g[0], g[1]
	if got, want := a.Priority.List(), []job.Class{{Name: "urgent"}, {Name: "normal", Usual: true}, {Name: "batch", Floor: 5}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := a.Priority.Above(); !slices.Equal(got, []string{"urgent"}) || b.Priority.List() != nil || b.Priority.Above() != nil {
		t.Errorf("above the default: %v", got)
	}
	for name, want := range map[string]string{"": "", "normal": "", "urgent": "urgent", "batch": "batch"} {
		if got, err := a.Class(name); got != want || err != nil {
			t.Errorf("class %q: %q, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{"urgnet": `gateway a has no class "urgnet": it has urgent, normal, batch; did you mean urgent?`, "x": `gateway a has no class "x": it has urgent, normal, batch`} {
		if _, err := a.Class(name); err == nil || err.Error() != want {
			t.Errorf("class %q: %v", name, err)
		}
	}
	if _, err := b.Class("urgent"); err == nil || err.Error() != `priority "urgent": gateway b has no classes: leave the priority out, or write priority.classes in the configuration` {
		t.Error(err)
	}
}

func TestBadPriorities(t *testing.T) {
	t.Parallel()
	const head = "gateways:\n  g:\n    request: {url: https://x.example/}\n    leak: {limits: [5/s]}\n    priority: "
	for text, want := range map[string]string{
		`{}`:                                                      `5:5: gateways.g.priority.classes: is missing: write the classes, the highest first, like [urgent, normal, batch]`,
		`{classes: [a, b]}`:                                       `5:5: gateways.g.priority.default: is missing: write the class of jobs that name none, one of a, b`,
		`{classes: [a], default: a}`:                              `5:16: gateways.g.priority.classes: these are 1 classes: give 2 to 4`,
		`{classes: [a, b, c, d, e], default: a}`:                  `5:16: gateways.g.priority.classes: these are 5 classes: give 2 to 4`,
		`{classes: [a, a, b], default: a}`:                        `5:29: gateways.g.priority.classes[1]: "a" is there twice: keep one of them`,
		`{classes: [A, b], default: b}`:                           `5:26: gateways.g.priority.classes[0]: "A" is not a class's name: use lower-case letters, digits, _ and -, starting with a letter or digit`,
		`{classes: [a, b], default: c}`:                           `5:42: gateways.g.priority.default: "c" is none of the classes: write one of a, b`,
		`{classes: [a, b], default: a, floors: {c: 5%}}`:          `5:57: gateways.g.priority.floors.c: "c" is none of the classes: write one of a, b`,
		`{classes: [a, b], default: a, floors: {a: 60%, b: 50%}}`: `5:45: gateways.g.priority.floors: the floors add up to 110 %: give at most 100 % together`,
		`{classes: [a, b], default: a, floors: {a: 0.5}}`:         `5:57: gateways.g.priority.floors.a: "0.5" is not a share: write whole percent, from 1% to 100%`,
	} {
		_, err := Parse("f.yaml", []byte(head+text+"\n"), Options{Secrets: true, Env: testEnv})
		if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:"+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}
