package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mixed is an assignment to a name and behind it to a field, all at once: the Lua of the Redis inside, which is not Redis's own, gives a name
// from outside of the function the field's value then.
var mixed = regexp.MustCompile(`^\s*[A-Za-z_]\w*\s*,[^=()"']*[\w\]][.\[][^=]*[^=~<>]=[^=]`)

func TestNoScriptAssignsANameAndThenAField(t *testing.T) {
	for line, want := range map[string]bool{
		"  stamped, shelves[set] = first, members": true, "a, b.c = 1, 2": true, "n, from = n + 2, from + #t[1]": false,
		"shelves[set], stamped = members, first": false, "local a, b = c.d, e[1]": false, "if a == b[1] then c = 2 end": false,
	} {
		if mixed.MatchString(line) != want {
			t.Errorf("%q: %v, want %v", line, !want, want)
		}
	}
	scripts := 0
	err := filepath.WalkDir("../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".lua" {
			return err
		}
		scripts++
		text, err := os.ReadFile(path)
		for i, line := range strings.Split(string(text), "\n") {
			if mixed.MatchString(line) {
				t.Errorf("%s:%d: assign the name and the field one after the other: %s", path, i+1, strings.TrimSpace(line))
			}
		}
		return err
	})
	if err != nil || scripts == 0 {
		t.Errorf("%d scripts were looked at, %v", scripts, err)
	}
}
