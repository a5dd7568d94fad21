package redisdb

import (
	"slices"
	"testing"
)

// Each use of a constant becomes its number; what only looks like one stays.
func TestConstantsBecomeNumbers(t *testing.T) {
	t.Parallel()
	got := WithConstants(`local MOST, PART = 500, 1 / 1024 -- MOST of all
local K = 3
local LINES = {1}
local NAME = f(2)
local function of(MOSTLY) return MOST * PART - K end
`, `local v = t.MOST + MOST .. 'MOST' .. "PART" -- MOST
return LINES[1], NAME, MOSTLY, PART`)
	want := []string{`local MOST, PART = 500, 1 / 1024 -- MOST of all
local K = 3
local LINES = {1}
local NAME = f(2)
local function of(MOSTLY) return 500 * (1 / 1024) - K end
`, `local v = t.MOST + 500 .. 'MOST' .. "PART" -- MOST
return LINES[1], NAME, MOSTLY, (1 / 1024)`}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwanted %q", got, want)
	}
}
