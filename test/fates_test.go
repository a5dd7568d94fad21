package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// matrix is the table of what becomes of a job that meets trouble, by pack. internal/dispatch plays each line of it.
const matrix = "../internal/dispatch/matrix_table_test.go"

// fate is one trouble, what a job comes to that meets it, and what it comes to if its process dies before or after the first call.
type fate struct {
	name       string
	ends, dies []string
}

// ends are the words of the matrix, as the page has them.
var ends = map[string]string{"line": "invalid line", "theirs": "done by another payment's answer"}

// fatesOf reads the part of the matrix that is about a pack. Lines about one trouble are taken together.
func fatesOf(t *testing.T, pack string) (all []fate) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(matrixOf(t)[pack])) {
		words := slices.DeleteFunc(strings.Fields(line), func(w string) bool { return strings.Contains(w, "=") })
		if len(words) < 4 {
			t.Fatalf("%s, %s: %q has no ends", matrix, pack, line)
		}
		for i, w := range words[1:] {
			if word := ends[w]; word != "" {
				words[i+1] = word
			}
		}
		last := len(all) - 1
		if last < 0 || all[last].name != words[0] {
			all, last = append(all, fate{name: words[0]}), last+1
		}
		all[last].ends = append(all[last].ends, words[1])
		all[last].dies = append(all[last].dies, words[2:4]...)
	}
	return all
}

// matrixOf reads the table out of the test that has it.
func matrixOf(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), matrix, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || v.Names[0].Name != "expected" {
			return true
		}
		for _, e := range v.Values[0].(*ast.CompositeLit).Elts {
			pair := e.(*ast.KeyValueExpr)
			all[literal(t, pair.Key)] = literal(t, pair.Value)
		}
		return false
	})
	return all
}

func literal(t *testing.T, e ast.Expr) string {
	t.Helper()
	text, err := strconv.Unquote(e.(*ast.BasicLit).Value)
	if err != nil {
		t.Fatalf("%s: %v", matrix, err)
	}
	return text
}

// either writes what may come of it.
func either(ends []string) string {
	slices.Sort(ends)
	return strings.Join(slices.Compact(ends), " or ")
}
