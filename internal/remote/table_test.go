package remote

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// Each operation is in the table: otherwise no dispatcher serves it.
func TestEveryOperationIsInTheTable(t *testing.T) {
	t.Parallel()
	var inTable []string
	for _, o := range Table() {
		name := o.Described().Name
		if slices.Contains(inTable, name) {
			t.Errorf("%s is there twice", name)
		}
		inTable = append(inTable, name)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`About\{Name: "(\w+)"`).FindAllSubmatch(text, -1) {
			declared++
			if !slices.Contains(inTable, string(m[1])) {
				t.Errorf("%s has the operation %s, which is not in the table", f, m[1])
			}
		}
	}
	if declared < 30 {
		t.Errorf("%d operations were found in the files", declared)
	}
}
