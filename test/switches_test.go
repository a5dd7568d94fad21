package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// What becomes of a job is decided by its verdict in these functions. Go lets a switch forget a constant, and what a switch forgets its default decides: an attempt
// that is spent, a job that is parked.
func TestNoDecisionForgetsAVerdict(t *testing.T) {
	t.Parallel()
	verdicts := constantsOf(t, "../internal/job/job.go", "Verdict")
	if len(verdicts) < 8 {
		t.Fatalf("the verdicts are %v", verdicts)
	}
	for _, at := range []struct{ file, function string }{
		{"../internal/outcome/outcome.go", "judge"}, {"../internal/worker/call.go", "finish"}, {"../internal/worker/call.go", "unsure"},
	} {
		named := namesIn(t, at.file, at.function)
		for _, verdict := range verdicts {
			if !named[verdict] {
				t.Errorf("%s: %s does not say what %s means", at.file, at.function, verdict)
			}
		}
	}
}

// constantsOf returns the names of a file's constants of a type.
func constantsOf(t *testing.T, path, of string) (names []string) {
	ast.Inspect(parsed(t, path), func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == of {
			names = append(names, spec.Names[0].Name)
		}
		return true
	})
	return names
}

// namesIn returns what a function or method names behind a dot.
func namesIn(t *testing.T, path, function string) map[string]bool {
	named := map[string]bool{}
	for _, d := range parsed(t, path).Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == function {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					named[s.Sel.Name] = true
				}
				return true
			})
		}
	}
	return named
}

func parsed(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
