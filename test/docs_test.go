package test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages returns every page of Markdown that people read, by its path from here.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"../*.md", "../docs/*.md", "../docs/adr/*.md", "../examples/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(files), err)
		}
		for _, f := range files {
			all[f] = text(t, f)
		}
	}
	return all
}

var (
	link       = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAName = regexp.MustCompile(`[^\w -]`)
)

// anchors are the names by which links reach the headings of a page.
func anchors(page string) map[string]bool {
	all := map[string]bool{"": true}
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		all[strings.ReplaceAll(notInAName.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return all
}

// A link from page to page leads to something that is there, also within the page.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for file, page := range all {
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, ":") {
				continue // elsewhere
			}
			target := file
			if to != "" {
				target = filepath.Join(filepath.Dir(file), to)
			}
			if _, err := os.Stat(target); err != nil || anchor != "" && !anchors(all[target])[anchor] {
				t.Errorf("%s links to %s, which is not there", file, m[1])
			}
		}
	}
}

// A visitor reads one page, and one cell that is too long makes a table unreadable.
func TestTheREADMEIsShort(t *testing.T) {
	t.Parallel()
	if n := len(strings.Fields(text(t, "../README.md"))); n > 1000 {
		t.Errorf("README.md has %d words, over 1,000: move what not everybody needs into docs/", n)
	}
}

// A key has one sentence in its table. Everything else about it is below the table.
func TestKeysHaveOneSentenceEach(t *testing.T) {
	t.Parallel()
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| [^|]+ \\| [^|]+ \\| (.*) \\|$").FindAllStringSubmatch(text(t, "../docs/configuration.md"), -1) {
		if len(m[2]) > 120 {
			t.Errorf("docs/configuration.md: the cell of %s has %d characters, over 120: say the rest below the table", m[1], len(m[2]))
		}
	}
}

// docs/commands.md has a row for each command of dispatcher.
func TestEveryCommandIsListed(t *testing.T) {
	t.Parallel()
	listed := text(t, "../docs/commands.md")
	for _, f := range sources(t) {
		if f.folder != "cmd/dispatcher" || f.test {
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)Use: "([a-z]+)`).FindAllStringSubmatch(f.text, -1) {
			if !regexp.MustCompile("`(?:dispatcher )?" + m[1] + "[` ]").MatchString(listed) {
				t.Errorf("docs/commands.md does not name %s, which %s makes", m[1], f.path)
			}
		}
	}
}

var placed = regexp.MustCompile("`((?:cmd|internal|client)/[a-z_/]+\\.go): ([A-Za-z.]+)`")

// A name that the docs give as `file: Name` is declared in that file.
func TestWhatTheDocsNameIsInTheCode(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range append(pages, "../CONTRIBUTING.md") {
		for _, m := range placed.FindAllStringSubmatch(text(t, page), -1) {
			name := m[2][strings.LastIndex(m[2], ".")+1:]
			declared := `(?m)^(func (\([^)]*\) )?|type |\t?var |\tconst |\t)` + name + `\b`
			if named++; !regexp.MustCompile(declared).MatchString(text(t, "../"+m[1])) {
				t.Errorf("%s: there is no %s in %s", page, m[2], m[1])
			}
		}
	}
	if named < 30 {
		t.Errorf("the docs name %d places alone", named)
	}
}

// docs/architecture.md has a row for each folder with scripts, and all of them in it.
func TestArchitectureListsTheScripts(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(text(t, "../docs/architecture.md"), "\n## Scripts\n")
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(internal/[a-z]+)/` \\| (.*) \\|$").FindAllStringSubmatch(table, -1) {
		for _, name := range quoted.FindAllStringSubmatch(row[2], -1) {
			listed["../"+row[1]+"/"+name[1]+".lua"] = true
		}
	}
	delete(listed, "../internal/redisdb/NowLua.lua") // a text in Go
	files, err := filepath.Glob("../internal/*/*.lua")
	for _, file := range files {
		if !listed[file] {
			t.Errorf("docs/architecture.md does not list %s among the scripts", file)
		}
		delete(listed, file)
	}
	if err != nil || len(files) == 0 || len(listed) > 0 {
		t.Errorf("docs/architecture.md lists scripts that are not there: %v; %d are, %v", slices.Sorted(maps.Keys(listed)), len(files), err)
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// The glossary says where a word or a name lives. That is there, and the names of the code occur in it.
func TestTheGlossaryIsOfThisCode(t *testing.T) {
	t.Parallel()
	words, names, _ := strings.Cut(text(t, "../docs/glossary.md"), "\n## Names in the code\n")
	for _, row := range rows(words) {
		places(t, row)
	}
	for _, row := range rows(names) {
		code := places(t, row)
		for _, name := range quoted.FindAllStringSubmatch(row[0], -1) {
			if !regexp.MustCompile(`\b` + name[1]).MatchString(code) {
				t.Errorf("docs/glossary.md: there is no %s in %s any more", name[1], row[2])
			}
		}
	}
}

// rows returns the rows of all tables of three columns, without their heads.
func rows(page string) (all [][]string) {
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) == 3 && cells[2] != "where" {
			all = append(all, cells)
		}
	}
	return all
}

// places returns the names and the texts of the files that the last cell of a row names. A file without a folder is in that of the one before.
func places(t *testing.T, row []string) (code string) {
	t.Helper()
	folder := ""
	for _, m := range quoted.FindAllStringSubmatch(row[2], -1) {
		path := m[1]
		switch {
		case strings.HasPrefix(path, "cmd/"):
			path = "../" + path
		case filepath.Ext(path) == "" || strings.Contains(path, "/"):
			path = "../internal/" + path
		default:
			path = filepath.Join(folder, path)
		}
		if filepath.Ext(path) == "" {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("docs/glossary.md: %s: %v", row[0], err)
			}
			continue
		}
		folder, code = filepath.Dir(path), code+path+"\n"+text(t, path)
	}
	return code
}
