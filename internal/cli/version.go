package cli

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// built is the version given to the linker (-X), for a build without the git directory, such as the image's.
// Empty means the version recorded by Go.
var built string

// Version returns what the program was built from, as recorded by Go: the module's version, the commit and its
// time, and the toolchain.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	parts := []string{cmp.Or(built, info.Main.Version)}
	if commit := set["vcs.revision"]; commit != "" {
		parts = append(parts, "commit "+commit[:min(12, len(commit))]+" of "+set["vcs.time"])
	}
	if set["vcs.modified"] == "true" {
		parts = append(parts, "with changes that are in no commit")
	}
	return strings.Join(append(parts, info.GoVersion), ", ")
}
