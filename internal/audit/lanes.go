package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// laneStep is how many lanes one script reads.
const laneStep = 200

const (
	// laneCounts is the most lanes that one script counts, which takes Redis some 20 ms.
	laneCounts = 5000
	// lanePart is how many of more lanes are counted at once, and laneTries how often that is restarted because
	// something has changed.
	lanePart, laneTries = 1000, 3
)

// laneCheck checks that every lane with jobs is in exactly one place: among those that may not be called yet, or
// among those that may. A lane and its places are read in one script, so what looks wrong is wrong.
type laneCheck struct {
	g      *Gateway
	repair bool
	found  func(Finding)
	most   int         // lanes that one script counts; zero means laneCounts
	lost   func() bool // reports whether lanes are in the wrong place, so they can't be counted; not called for a repair
	steps
}

func (c *laneCheck) run(ctx context.Context) error {
	c.stepped = time.Now()
	err := c.relist(ctx)
	var sets []string
	if err == nil {
		sets, err = redisdb.LaneSets(ctx, c.g.c, c.g.keys)
	}
	for _, set := range sets {
		if err == nil {
			err = c.set(ctx, set)
		}
	}
	if err == nil && (c.repair || !c.lost()) {
		err = c.recount(ctx, sets)
	}
	if err != nil {
		return fmt.Errorf("check the lanes of %s: %w", c.g.name, err)
	}
	return nil
}

// relist finds sets of lanes that are never read.
func (c *laneCheck) relist(ctx context.Context) error {
	lost, err := c.g.relist(ctx, c.repair)
	for _, flow := range lost {
		if !c.repair {
			c.found(Finding{What: LaneSets, Text: "nobody looks at the lanes in ready:" + flow})
		}
	}
	return err
}

// relist returns the flows whose callable lanes are never read, because the state of all lanes together was lost.
// With repair they are read again.
func (g *Gateway) relist(ctx context.Context, repair bool) ([]string, error) {
	args, ready := []any{g.NowMicros.Now(), repair}, g.keys.Ready("")
	for _, set := range g.books.LaneSets() {
		if flow, is := strings.CutPrefix(set, ready); is {
			args = append(args, flow)
		}
	}
	if len(args) == 2 {
		return nil, nil
	}
	return relistScript.Run(ctx, g.c, []string{g.keys.Lanes(), g.keys.Nobodys()}, args...).StringSlice()
}

// recount checks the stored numbers of waiting jobs, in all and for each flow, and of lanes with jobs, which views
// and estimates use. If lanes are in the wrong place, it checks nothing. More than laneCounts lanes are counted a
// few at a time, which fails while jobs come and go.
func (c *laneCheck) recount(ctx context.Context, sets []string) error {
	differ, err := c.g.recount(ctx, "all", cmp.Or(c.most, laneCounts), c.repair)
	for try := 0; err == nil && slices.Equal(differ, []string{"many"}); try++ {
		if try == laneTries {
			c.found(Finding{What: LanesUncounted})
			return nil
		}
		differ, err = c.recountParts(ctx, sets)
	}
	if err != nil || c.repair {
		return err
	}
	for i := 0; i+2 < len(differ); i += 3 {
		what := "jobs in lanes"
		if flow, of := strings.CutPrefix(differ[i], "n"); of {
			class, route, _ := strings.Cut(flow, ":")
			what = fmt.Sprintf("jobs in lanes of class %q and route %q", class, route)
		} else if differ[i] == "busy" {
			what = "lanes with jobs"
		}
		c.found(Finding{What: LaneCounts, Text: fmt.Sprintf("%s are said to be %s, and are %s", what, differ[i+1], differ[i+2])})
	}
	return nil
}

func (g *Gateway) recount(ctx context.Context, args ...any) ([]string, error) {
	return recountScript.Run(ctx, g.c, []string{g.keys.Lanes(), g.keys.Throttled(), g.keys.Nobodys()}, args...).StringSlice()
}

// recountParts counts the lanes of all sets, a few at a time. It returns the result of recount.lua for all; "many"
// if something has changed meanwhile.
func (c *laneCheck) recountParts(ctx context.Context, sets []string) ([]string, error) {
	mark, is := "", map[string]int64{}
	for _, set := range sets {
		for at := 0; ; at += lanePart {
			part, err := c.g.recount(ctx, "part", set, at, at+lanePart-1)
			if err != nil {
				return nil, err
			}
			if mark = cmp.Or(mark, part[0]); part[0] != mark {
				return []string{"many"}, nil
			}
			for i := 2; i+1 < len(part); i += 2 {
				n, _ := strconv.ParseInt(part[i+1], 10, 64)
				is[part[i]] += n
			}
			if err := c.step(ctx); err != nil {
				return nil, err
			}
			if part[1] != strconv.Itoa(lanePart) {
				break
			}
		}
	}
	args := []any{"level", c.repair, mark}
	for name, n := range is {
		args = append(args, name, n)
	}
	differ, err := c.g.recount(ctx, args...)
	if slices.Equal(differ, []string{"changed"}) {
		return []string{"many"}, err
	}
	return differ, err
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

// relane puts a lane in its right place. flow is a flow that it has, CLASS:ROUTE, besides those known, or empty.
func (g *Gateway) relane(ctx context.Context, lane, flow string) error {
	return relaneScript.Run(ctx, g.c, []string{g.keys.Lanes(), g.keys.Nobodys()}, g.NowMicros.Now(), lane, flow).Err()
}

// findLane repairs the lane of a job that is never called because the lane is in no set.
func (g *Gateway) findLane(ctx context.Context, id string) error {
	v, err := g.c.HMGet(ctx, g.keys.Job(id), record.Shorts([]string{"priority", "route", "lane"})...).Result()
	if err != nil {
		return err
	}
	text := func(i int) string { s, _ := v[i].(string); return s }
	if err = g.relane(ctx, text(2), text(0)+":"+text(1)); err == nil && text(0) != "" {
		err = g.relane(ctx, text(2), ":"+text(1)) // its class may have been the default when it was put there
	}
	return err
}

// mendPlace repairs a finding about one job if audit --repair covers it, and reports whether it does.
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
