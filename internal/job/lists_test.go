package job

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// constants returns the texts of this package's constants, by their types, and those without a type by their files.
func constants(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			value, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || value.Kind != token.STRING {
				return true
			}
			of := name
			if typ, ok := spec.Type.(*ast.Ident); ok {
				of = typ.Name
			}
			text, _ := strconv.Unquote(value.Value)
			all[of] = append(all[of], text)
			return true
		})
	}
	return all
}

// Metrics, filters, sets in Redis and the configuration use the lists: a value that is missing in its list would be unknown to all of them.
func TestWhatIsDeclaredIsInItsList(t *testing.T) {
	t.Parallel()
	declared := constants(t)
	for of, list := range map[string][]string{"Reason": Texts(Reasons()), "Verdict": Texts(Verdicts()), "algorithm.go": Algorithms()} {
		want, got := slices.Sorted(slices.Values(declared[of])), slices.Sorted(slices.Values(list))
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: declared are %v, and its list has %v", of, want, got)
		}
	}
}

// The page of a job, the list of what needs a person, and the runbook use the words of the table of reasons.
func TestEachReasonIsExplained(t *testing.T) {
	t.Parallel()
	for _, r := range Reasons() {
		a := r.About()
		if a.Why == "" || a.Next == "" {
			t.Errorf("%s: %q, %q", r, a.Why, a.Next)
		}
		if (a.Needs == "") != (a.Do == "") || a.Needs != "" && (strings.Count(a.Do, "%s") != 1 || a.Section == "") {
			t.Errorf("%s needs a person for %q, who is to type %q, as %q says", r, a.Needs, a.Do, a.Section)
		}
	}
	if a := Reason("later").About(); !strings.Contains(a.Why, "does not know") {
		t.Errorf("a reason of a later version: %q", a.Why)
	}
}
