package redisdb

import (
	"context"
	_ "embed" // for the script
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	// counted is a field of Classes that is not a class.
	counted = "#"
	// lanesMark is the field of Classes that says that tasks are or were in lines of lanes.
	lanesMark = "#lanes"
)

// FirstLines returns First for every class that ever had jobs in a gateway's queue.
func FirstLines(ctx context.Context, c redis.UniversalClient, k Keys) ([]string, error) {
	classes, err := ClassesOf(ctx, c, k)
	return k.firsts(classes), err
}

func (k Keys) firsts(classes []string) []string {
	lines := make([]string, len(classes))
	for i, class := range classes {
		lines[i] = k.First(class)
	}
	return lines
}

// ClassesOf returns the classes, except for the default one, that ever had jobs in a gateway's queue, sorted by name.
func ClassesOf(ctx context.Context, c redis.UniversalClient, k Keys) ([]string, error) {
	classes, _, err := ClassesAndLanes(ctx, c, k)
	return classes, err
}

// ClassesAndLanes is ClassesOf, and also returns whether tasks are or were in lines of lanes.
func ClassesAndLanes(ctx context.Context, c redis.UniversalClient, k Keys) (classes []string, lanes bool, err error) {
	classes, err = c.HKeys(ctx, k.Classes()).Result()
	lanes = slices.Contains(classes, lanesMark)
	classes = slices.DeleteFunc(classes, func(class string) bool { return class == counted || class == lanesMark })
	slices.Sort(classes)
	return classes, lanes, err
}

// Lines returns all lists of a gateway's queue: those of Keys.Lines, those of classes, and those of lanes (see
// LaneLines).
func Lines(ctx context.Context, c redis.UniversalClient, k Keys) ([]string, error) {
	classes, laned, err := ClassesAndLanes(ctx, c, k)
	var lanes []string
	if err == nil && laned {
		lanes, err = LaneLines(ctx, c, k)
	}
	return slices.Concat(k.Lines(), k.firsts(classes), lanes), err
}

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
