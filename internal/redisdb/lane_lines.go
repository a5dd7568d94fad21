package redisdb

import (
	"context"
	_ "embed" // for the script
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lane_lines.lua
var laneLinesLua string

var laneLinesScript = NewScript(laneLinesLua)

const lanesStep = 500 // lanes read by one script call

// WaitingLanes returns the keys of the sets of lanes with jobs, for all classes and routes of a gateway; the default
// ones may be left out of the arguments.
func (k Keys) WaitingLanes(classes, routes []string) []string {
	sets := []string{k.Throttled()}
	for _, class := range append([]string{""}, classes...) {
		for _, route := range append([]string{""}, routes...) {
			sets = append(sets, k.Ready(class+":"+route))
		}
	}
	return sets
}

// LaneLines returns the lists of tasks in a gateway's lanes (list of task ids, as Pending). A task that moves
// meanwhile, from the queue's own lines or between these lists, may be missed: read the queue's own lines first.
func LaneLines(ctx context.Context, c redis.UniversalClient, k Keys) (lines []string, err error) {
	sets, err := LaneSets(ctx, c, k)
	seen := map[string]bool{}
	for _, set := range sets {
		for at, more := int64(0), true; more && err == nil; at += lanesStep {
			var some []any
			if some, err = laneLinesScript.Run(ctx, c, []string{k.Lanes(), set}, at, at+lanesStep-1).Slice(); err != nil {
				break
			}
			n, _ := some[0].(int64)
			more = n == lanesStep
			for _, line := range some[1:] {
				if name, _ := line.(string); !seen[name] {
					seen[name], lines = true, append(lines, name)
				}
			}
		}
	}
	return lines, err
}

// LaneSets returns the sets that together contain every lane with tasks.
func LaneSets(ctx context.Context, c redis.UniversalClient, k Keys) ([]string, error) {
	on, err := c.HGet(ctx, k.Lanes(), "on").Result()
	if err == redis.Nil { //nolint:errorlint // go-redis returns it unwrapped
		err = nil
	}
	sets := []string{k.Throttled()}
	for _, flow := range strings.Fields(on) {
		sets = append(sets, k.Ready(flow))
	}
	return sets, err
}
