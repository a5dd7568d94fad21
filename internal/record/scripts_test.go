package record

import (
	"regexp"
	"slices"
	"testing"

	"spillway/internal/redisdb"
)

// A script has every function of the fragments that it uses. The test does not use the composer's own parser.
func TestNoScriptMissesAFunction(t *testing.T) {
	t.Parallel()
	defines := regexp.MustCompile(`(?m)^local (?:function )?(\w+)`)
	var names []string
	for _, m := range defines.FindAllStringSubmatch(redisdb.NowLua+Lua+OutageLua, -1) {
		names = append(names, m[1])
	}
	if len(names) < 60 {
		t.Fatalf("found %d definitions only", len(names))
	}
	for _, name := range names {
		text := redisdb.Compose(redisdb.NowLua, Lua, OutageLua, "return "+name)
		has := defines.FindAllStringSubmatch(text, -1)
		for _, other := range names {
			defined := slices.ContainsFunc(has, func(m []string) bool { return m[1] == other })
			code := regexp.MustCompile(`--.*`).ReplaceAllString(text, "")
			if used := regexp.MustCompile(`\b` + other + `\(`).MatchString(code); used && !defined {
				t.Errorf("a script that uses %s misses %s", name, other)
			}
		}
	}
}

// A process with thousands of gateways has the text of each script only once.
func TestAScriptIsComposedOnceForEachAdmissionCheck(t *testing.T) {
	t.Parallel()
	const check, other = "local function bucket_load() end\n", "local function bucket_load() return 1 end\n"
	for name, composed := range map[string]func(string) *redisdb.Script{
		"readmit":      func(check string) *redisdb.Script { return Readmit(check, true) },
		"accept":       func(check string) *redisdb.Script { return Accept(check, Form{Flows: true}) },
		"accept, told": func(check string) *redisdb.Script { return Accept(check, Form{Feed: true, Flows: true}) }} {
		first := composed(check)
		if composed(check) != first {
			t.Errorf("%s: the same admission check has its script composed again", name)
		}
		if composed(other) == first {
			t.Errorf("%s: another admission check has the script of the first", name)
		}
	}
}
