package redisdb

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

const (
	// counted is the field of Classes that is no class.
	counted = "#"
	// lanesMark is the field of Classes that says that tasks stand in the lines of lanes, or did.
	lanesMark = "#lanes"
)

// FirstLines returns First of every class of which jobs were put into a gateway's queue.
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

// ClassesOf returns the classes of which jobs were put into a gateway's queue, but for the usual one, in the order of their names.
func ClassesOf(ctx context.Context, c redis.UniversalClient, k Keys) ([]string, error) {
	classes, _, err := ClassesAndLanes(ctx, c, k)
	return classes, err
}

// ClassesAndLanes is ClassesOf, and says whether tasks stand in the lines of lanes, or did.
func ClassesAndLanes(ctx context.Context, c redis.UniversalClient, k Keys) (classes []string, lanes bool, err error) {
	classes, err = c.HKeys(ctx, k.Classes()).Result()
	lanes = slices.Contains(classes, lanesMark)
	classes = slices.DeleteFunc(classes, func(class string) bool { return class == counted || class == lanesMark })
	slices.Sort(classes)
	return classes, lanes, err
}

// Lines returns all lists that make up a gateway's queue: those of Keys.Lines, those of classes, and those of lanes (see LaneLines).
func Lines(ctx context.Context, c redis.UniversalClient, k Keys) ([]string, error) {
	classes, laned, err := ClassesAndLanes(ctx, c, k)
	var lanes []string
	if err == nil && laned {
		lanes, err = LaneLines(ctx, c, k)
	}
	return slices.Concat(k.Lines(), k.firsts(classes), lanes), err
}
