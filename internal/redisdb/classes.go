package redisdb

import (
	"context"
	"slices"

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
