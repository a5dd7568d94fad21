package audit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// laneStep is how many lanes are looked at in one script.
const laneStep = 200

// laneCounts is how many lanes are counted in one script, at most: it takes Redis some 20 ms.
const laneCounts = 5000

// laneCheck looks at every lane with jobs: it stands in exactly one place, among those that may not be called yet or among those that may. A lane and its places are read
// in one script, so what looks wrong there is wrong.
type laneCheck struct {
	g      *Gateway
	repair bool
	found  func(Finding)
	lost   func() bool // says that lanes stand elsewhere, so they can't be counted; not asked where it is to repair
	steps
}

func (c *laneCheck) run(ctx context.Context) error {
	c.stepped = time.Now()
	sets, err := redisdb.LaneSets(ctx, c.g.c, c.g.keys)
	for _, set := range sets {
		if err == nil {
			err = c.set(ctx, set)
		}
	}
	if err == nil && (c.repair || !c.lost()) {
		err = c.recount(ctx)
	}
	if err != nil {
		return fmt.Errorf("check the lanes of %s: %w", c.g.name, err)
	}
	return nil
}

// recount looks at how many jobs are said to wait, in all and in each flow, and how many lanes are said to have jobs: views and estimates go by it. Where more than laneCounts
// lanes have jobs, or some do not stand where they are to, it looks at none.
func (c *laneCheck) recount(ctx context.Context) error {
	keys := []string{c.g.keys.Lanes(), c.g.keys.Throttled(), c.g.keys.Nobodys()}
	got, err := recountScript.Run(ctx, c.g.c, keys, laneCounts, c.repair).StringSlice()
	if err != nil || c.repair {
		return err
	}
	for i := 0; i+2 < len(got); i += 3 {
		what := "jobs in lanes"
		if flow, of := strings.CutPrefix(got[i], "n"); of {
			class, route, _ := strings.Cut(flow, ":")
			what = fmt.Sprintf("jobs in lanes of class %q and route %q", class, route)
		} else if got[i] == "busy" {
			what = "lanes with jobs"
		}
		c.found(Finding{What: LaneCounts, Text: fmt.Sprintf("%s are said to be %s, and are %s", what, got[i+1], got[i+2])})
	}
	return nil
}

func (c *laneCheck) set(ctx context.Context, set string) error {
	for at := 0; ; at += laneStep {
		got, err := lanedScript.Run(ctx, c.g.c, []string{c.g.keys.Lanes(), set}, at, at+laneStep-1).StringSlice()
		if err != nil {
			return err
		}
		for i := 1; i+1 < len(got); i += 2 {
			if c.repair {
				if err := c.g.relane(ctx, got[i], ""); err != nil {
					return err
				}
				continue
			}
			c.found(Finding{What: LaneSets, Text: "lane " + strconv.Quote(got[i]) + " " + got[i+1]})
		}
		if len(got) == 0 || got[0] != strconv.Itoa(laneStep) {
			return nil
		}
		if err := c.step(ctx); err != nil {
			return err
		}
	}
}

// relane puts a lane where it is to stand. flow is one that it has, CLASS:ROUTE, besides those that it is known to have, or empty.
func (g *Gateway) relane(ctx context.Context, lane, flow string) error {
	return relaneScript.Run(ctx, g.c, []string{g.keys.Lanes(), g.keys.Nobodys()}, g.NowMicros.Now(), lane, flow).Err()
}

// findLane puts the lane right of a job that nobody calls, as the lane stands in no set.
func (g *Gateway) findLane(ctx context.Context, id string) error {
	v, err := g.c.HMGet(ctx, g.keys.Job(id), record.Shorts([]string{"priority", "route", "lane"})...).Result()
	if err != nil {
		return err
	}
	text := func(i int) string { s, _ := v[i].(string); return s }
	if err = g.relane(ctx, text(2), text(0)+":"+text(1)); err == nil && text(0) != "" {
		err = g.relane(ctx, text(2), ":"+text(1)) // its class may have been the usual one when it was put there
	}
	return err
}

// mendPlace puts right what audit --repair does of what was found of one job, and says whether it is such a thing.
func (g *Gateway) mendPlace(ctx context.Context, f Finding) (bool, error) {
	switch {
	case f.What == NoLane:
		return true, g.findLane(ctx, f.ID)
	case f.Where == turnsPlace:
		_, err := g.mendOne(ctx, f.ID, 0)
		return true, err
	}
	return false, nil
}
