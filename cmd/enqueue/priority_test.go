package main

import (
	"testing"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// The class of a job comes from its line or from --priority. A line with an unknown class is invalid.
func TestClassesOfAFile(t *testing.T) {
	b := setup(t, place{more: "priority: {classes: [urgent, normal, batch], default: normal}"})
	b.write("a.ndjson", `{"id":"a"}
{"id":"b","priority":"urgent"}
{"id":"c","priority":"urgnet"}
{"id":"d","priority":"urgent","gateway":"`+b.g2+`"}
{"id":"e","priority":7}
{"id":"f","priority":"normal"}
`)
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "-q"), result{3, counts(6, 3, 0, 0, 3, 0),
		`line 3: gateway G has no class "urgnet": it has urgent, normal, batch; did you mean urgent?` + "\n" +
			`line 4: priority "urgent": gateway ` + b.g2 + " has no classes: leave the priority out, or write priority.classes in the configuration\n" +
			"line 5: priority must be a text in quotes\n" +
			"enqueue: 3 of 6 lines could not be used\nhint: mend them and enqueue them again; --rejects FILE collects them\n"})
	b.write("b.csv", "n,kind\ng,x\n")
	b.want(b.run("-g", b.g, "-f", "b.csv", "--id-field", "n", "--priority", "batch", "-o", "json", "-q"), result{0, counts(1, 1, 0, 0, 0, 0), ""})
	for id, class := range map[string]string{"a": "", "b": "urgent", "f": "", "g": "batch"} {
		if r := b.record(b.g, id); r.Job.Priority != class {
			t.Errorf("%s has the class %q, want %q", id, r.Job.Priority, class)
		}
	}
	k := redisdb.NewKeys(b.g)
	for line, want := range map[string]string{k.First("urgent"): "b~1", k.First("batch"): "g~1"} {
		if got := testkit.Client(t).LRange(t.Context(), line, 0, -1).Val(); len(got) != 1 || got[0] != want {
			t.Errorf("%s has %v", line, got)
		}
	}
}
