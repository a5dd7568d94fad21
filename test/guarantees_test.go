package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every promise in docs/guarantees.md names the tests that check it, and all of them exist.
func TestEveryGuaranteeHasItsTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	exists := testNames(t)
	name := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	for i, line := range strings.Split(string(text), "\n") {
		named := name.FindAllStringSubmatch(line, -1)
		for _, m := range named {
			if !exists[m[1]] {
				t.Errorf("docs/guarantees.md:%d: there is no test %s", i+1, m[1])
			}
		}
	}
	if len(name.FindAllString(string(text), -1)) < 40 {
		t.Error("docs/guarantees.md names hardly any test")
	}
}

// testNames returns the names of all tests of the module.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
