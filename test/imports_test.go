// Package test checks rules of the whole module: the imports, the documentation, and what is shipped.
package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "spillway/"

// everything stands for all of our packages, but for what the folder's row leaves out.
const everything = "*"

// mayImport says, for each folder, which of our folders its code may import; internal/ is left out. A row with everything names behind
// it, with a minus, what it may not. Tests may import any of our packages but commands.
//
// The steps of the walk never import one another: what one needs of another it declares as a small interface, and
// cmd and internal/dispatch hand in the real one.
var mayImport = map[string]string{
	// the words and the ground
	"job":       "",
	"seal":      "",
	"pan":       "",
	"clock":     "",
	"roles":     "",
	"config":    "job packs roles",
	"packs":     "job",
	"oidc":      "roles",
	"lifecycle": "",
	"redisdb":   "job",
	"record":    "job redisdb",
	"testkit":   "",
	"tracing":   "job",
	"counts":    "",
	// the walk
	"producer":   "job pan",
	"admission":  "job clock",
	"queue":      "job clock record redisdb",
	"bucket":     "job clock counts record redisdb",
	"gateway":    "job",
	"access":     "redisdb seal",
	"outcome":    "job pan",
	"worker":     "job clock counts outcome tracing",
	"deadletter": "job clock pan record redisdb seal",
	"ledger":     "job clock record redisdb roles seal",
	// beside it: one puts right what is lost, the other can stop it
	"audit":       "clock job record redisdb",
	"incarnation": "clock job redisdb",
	"reconcile":   "job producer",
	"verify":      "", // a second opinion shares no code with what it judges: limits, records, books
	"feed":        "job record redisdb",
	"handoff":     "feed job redisdb",
	"postgres":    "feed job",
	"webhook":     "feed job",
	// around it
	"httpapi":  "job admission oidc producer redisdb roles tracing",
	"remote":   "bucket config deadletter desk dispatch doctor feed job reconcile redisdb roles tracing",
	"cli":      "job redisdb",
	"provider": "job",
	"double":   "job clock",
	// outside, where others import it
	"client": "",
	// where it is put together
	"dispatch":       everything + " -cmd -testkit -demo -provider -double",
	"bench":          "bucket job ledger provider redisdb",
	"desk":           "admission audit bucket clock config deadletter dispatch feed job ledger pan producer reconcile record redisdb roles seal tracing",
	"console":        "docs config deadletter desk dispatch doctor job ledger oidc pan redisdb roles tracing",
	"doctor":         "config desk dispatch incarnation job packs record redisdb roles",
	"demo":           everything + " -cmd -testkit",
	"cmd/enqueue":    everything + " -cmd -testkit",
	"cmd/dispatcher": everything + " -cmd -testkit",
}

func TestImports(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		for _, imported := range f.imports {
			if why := wrong(f, imported); why != "" {
				t.Errorf("%s imports %s: %s", f.path, imported, why)
			}
		}
	}
}

func TestEveryFolderHasARow(t *testing.T) {
	t.Parallel()
	rows := maps.Clone(mayImport)
	delete(rows, "bench")  // a module of its own
	delete(rows, "client") // public
	for _, folder := range folders(t) {
		name := strings.TrimPrefix(folder, "internal/")
		if _, ok := mayImport[name]; !ok {
			t.Errorf("%s is not in mayImport: say there what it may import", folder)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("mayImport has a row for %s, and there is no such folder", name)
	}
}

func wrong(f source, imported string) string {
	if strings.HasPrefix(imported, "github.com/hibiken/asynq") && f.folder != "queue" && f.folder != "bench" { // bench measures against it
		return "only internal/queue sees asynq"
	}
	if strings.HasPrefix(imported, "github.com/jackc/pgx") && f.folder != "postgres" && f.folder != "testkit" && f.folder != "bench" && !f.test {
		return "only internal/postgres sees pgx"
	}
	ours, ok := strings.CutPrefix(imported, module)
	if !ok {
		return ""
	}
	to := folderOf(ours)
	row, known := mayImport[f.folder]
	switch {
	case to == f.folder:
		return ""
	case strings.HasPrefix(to, "cmd/"):
		return "nobody imports a command"
	case f.test:
		return ""
	case to == "testkit":
		return "only _test files may"
	case !known && f.folder != "test":
		return "the folder has no row in mayImport"
	case !allowed(row, to):
		return "its row in mayImport does not allow it"
	}
	return ""
}

func allowed(row, to string) bool {
	names := strings.Fields(row)
	if len(names) > 0 && names[0] == everything {
		return !slices.Contains(names, "-"+to)
	}
	return slices.Contains(names, to)
}

// A program that imports the client gets no other package of ours.
func TestTheClientNeedsTheStandardLibraryAlone(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, f := range sources(t) {
		if f.folder != "client" || f.test {
			continue
		}
		seen++
		for _, imported := range f.imports {
			if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") || first+"/" == module {
				t.Errorf("%s imports %s", f.path, imported)
			}
		}
	}
	if seen == 0 {
		t.Error("there is no client")
	}
}

// The rules themselves are tested with allowed and forbidden imports.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to string
		test, ok bool
	}{
		{"worker", "spillway/internal/outcome", false, true},
		{"verify", "spillway/internal/bucket", false, false},
		{"verify", "spillway/internal/record", false, false},
		{"verify", "spillway/internal/job", false, false},
		{"worker", "spillway/internal/queue", false, false},
		{"client", "spillway/internal/job", false, false},
		{"worker", "spillway/internal/queue", true, true},
		{"worker", "spillway/internal/testkit", true, true},
		{"worker", "spillway/cmd/enqueue", true, false},
		{"demo", "spillway/internal/testkit", false, false},
		{"demo", "spillway/internal/provider", false, true},
		{"dispatch", "spillway/internal/provider", false, false},
		{"cmd/dispatcher", "spillway/internal/demo", false, true},
		{"cmd/dispatcher", "spillway/cmd/enqueue", false, false},
		{"redisdb", "spillway/internal/config", false, false},
		{"surprise", "spillway/internal/job", false, false},
		{"queue", "github.com/hibiken/asynq/x/metrics", false, true},
		{"worker", "github.com/hibiken/asynq", true, false},
		{"worker", "github.com/redis/go-redis/v9", false, true},
		{"desk", "github.com/jackc/pgx/v5", false, false},
	} {
		if why := wrong(source{folder: c.from, test: c.test}, c.to); (why == "") != c.ok {
			t.Errorf("%s imports %s (test: %v): %q, want it allowed: %v", c.from, c.to, c.test, why, c.ok)
		}
	}
}

// source is one Go file of the module.
type source struct {
	path, folder string
	test         bool
	imports      []string
	lines        int
	text         string
}

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && name != ".." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "vendor") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		out = append(out, read(t, p))
		return nil
	})
	if err != nil || len(out) < 20 {
		t.Fatalf("found %d Go files, %v", len(out), err)
	}
	return out
}

func read(t *testing.T, file string) source {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(filepath.ToSlash(file), "../")
	s := source{path: name, folder: folderOf(path.Dir(name)), test: strings.HasSuffix(name, "_test.go"),
		lines: strings.Count(string(text), "\n"), text: string(text)}
	for _, i := range tree.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		s.imports = append(s.imports, imported)
	}
	return s
}

// folderOf returns internal/x/y as x, cmd/x/y as cmd/x, and anything else by its first part.
func folderOf(dir string) string {
	parts := strings.Split(dir, "/")
	switch {
	case parts[0] == "internal" && len(parts) > 1:
		return parts[1]
	case parts[0] == "cmd" && len(parts) > 1:
		return "cmd/" + parts[1]
	}
	return parts[0]
}

// folders returns every internal/x and cmd/x with Go files in it.
func folders(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for _, f := range sources(t) {
		if parts := strings.Split(f.path, "/"); len(parts) > 2 && (parts[0] == "internal" || parts[0] == "cmd") {
			found[parts[0]+"/"+parts[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
