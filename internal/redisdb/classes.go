package redisdb

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// counted is the field of Classes that is no class.
const counted = "#"

// FirstLines returns First of every class of which jobs were put into a gateway's queue.
func FirstLines(ctx context.Context, c redis.UniversalClient, k Keys) ([]string, error) {
	classes, err := ClassesOf(ctx, c, k)
	lines := make([]string, len(classes))
	for i, class := range classes {
		lines[i] = k.First(class)
	}
	return lines, err
}

// ClassesOf returns the classes of which jobs were put into a gateway's queue, but for the usual one, in the order of their names.
func ClassesOf(ctx context.Context, c redis.UniversalClient, k Keys) ([]string, error) {
	classes, err := c.HKeys(ctx, k.Classes()).Result()
	classes = slices.DeleteFunc(classes, func(class string) bool { return class == counted || class == lanesMark })
	slices.Sort(classes)
	return classes, err
}
