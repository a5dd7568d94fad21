package redisdb

import (
	"slices"
	"strings"
	"testing"
)

const tools = `-- tools.lua: used_by_nobody is a word here only.
local LONG, SHORT = 10, 1 -- (units)
local cache
local function unit() return LONG end

local function used_by_nobody(x)
  return unit() + x
end

-- other is what the body uses.
local function other(x)
  cache = cache or {}
  return x + SHORT
end
local box = {}
function box.open() return 1 end
function box.close(x)
  return box.open() - x
end
redis.call('PING')
local at = redis.call('TIME')
local made = tostring 'x'
`

func TestAScriptHasWhatItUsesAndNoMore(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct{ in, out []string }{
		"return other(1)": {[]string{"LONG, SHORT", "local cache", "function other", "'PING'", "local at", "local made"},
			[]string{"function unit", "function used_by_nobody"}},
		"return 'other(1)' -- unit()":    {[]string{"'PING'", "local at"}, []string{"function", "cache", "LONG"}},
		`return 'it\'s' .. unit() .. ""`: {[]string{"function unit", "LONG"}, []string{"function other", "cache"}},
		"return used_by_nobody(2)":       {[]string{"function unit", "function used_by_nobody"}, []string{"function other"}},
		"return box.close(1)":            {[]string{"local box", "function box.open", "function box.close"}, []string{"function other"}},
		"return box.open()":              {[]string{"local box", "function box.open"}, []string{"function box.close"}},
		"return open, close, tools.open": {[]string{"'PING'"}, []string{"local box", "function box"}},
		"return {n = unit, m = cache}":   {[]string{"function unit", "local cache"}, []string{"function other"}},
	} {
		text := Compose(tools, body)
		if !strings.HasSuffix(text, body) {
			t.Errorf("%s is not at the end of\n%s", body, text)
		}
		for _, part := range want.in {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q is missing in\n%s", body, part, text)
			}
		}
		for _, part := range want.out {
			if strings.Contains(strings.TrimSuffix(text, body), part) {
				t.Errorf("%s: %q is still in\n%s", body, part, text)
			}
		}
	}
}

// TestScriptsAreComposedOnFirstUse guards the start of every command: composing all scripts takes some 70 ms of a processor.
func TestScriptsAreComposedOnFirstUse(t *testing.T) {
	const body = "return 'composed on first use'"
	composed := func() bool {
		scripts.Lock()
		defer scripts.Unlock()
		return slices.Contains(scripts.texts, body)
	}
	s := NewSharedScript(body)
	if composed() {
		t.Error("a script was composed when it was defined")
	}
	if s.one(); !composed() {
		t.Error("a script that was used is not among the texts")
	}
	if texts := Texts(); !slices.ContainsFunc(texts, func(text string) bool { return text != body && strings.Contains(text, body) }) {
		t.Error("Texts lacks the form for several callers, which was not used")
	}
}
