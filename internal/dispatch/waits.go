package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// Wait is what a job waits for.
type Wait struct {
	// Why describes it for a person.
	Why string
	// In is the approximate remaining wait; negative if unknown. It is known only for jobs in lanes.
	In time.Duration
	// Most says that In is an upper bound: other lanes may skip their turns.
	Most bool
}

// turn is one thing that a job in a lane waits for, and how long.
type turn struct {
	why  string
	in   time.Duration
	most bool
}

// laneWait returns what a queued job in a lane waits for: its lane's limits, its route's, or its turn among the
// lanes, whichever takes longest.
func laneWait(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record, v Glance, ahead ledger.Ahead) (w Wait, err error) {
	p, err := bucket.NewPacer(c, pacing(g, Limits{Limits: v.Limits}), unmeasured)
	if err != nil {
		return w, err
	}
	defer p.Close(ctx)
	lane, err := p.LookAtLane(ctx, r.Job.Lane)
	if err != nil {
		return w, err
	}
	route, err := p.LookAtRoute(ctx, r.Job.Route)
	if err != nil {
		return w, err
	}
	switch {
	case lane.Paused:
		return Wait{fmt.Sprintf("its lane %s is paused: dispatcher lane resume -g %s %s", r.Job.Lane, g.Name, ShellWord(r.Job.Lane)), -1, false}, nil
	case route.Paused:
		return Wait{fmt.Sprintf("its route %s is paused: dispatcher route resume -g %s %[1]s", r.Job.Route, g.Name), -1, false}, nil
	}
	if why, err := whyNoPlace(ctx, c, g, r); err != nil || why != "" {
		return Wait{why + ", " + behind(ahead.Jobs, ahead.AtLeast), -1, false}, err
	}
	room, err := p.Room(ctx, r.Job.Cost)
	if err != nil {
		return w, err
	}
	above := classesAbove(g, r.Job.Priority)
	own := ahead.Jobs
	for _, f := range lane.Flows {
		if above(f.Flow.Class) {
			own += f.Jobs
		}
	}
	var onRoute, higher int64
	for f, n := range v.Parts.Lanes.Flows {
		if f.Route == r.Job.Route && (above(f.Class) || f.Class == r.Job.Priority) {
			onRoute += n
		}
		if above(f.Class) {
			higher += n
		}
	}
	turns := own + (own+1)*max(v.Parts.Lanes.Busy-1, 0) // if all lanes take their turns
	byRoute := max(min(onRoute-1, turns), ahead.Jobs)
	all := []turn{
		{fmt.Sprintf("waiting for its turn: %s, and %s", plural(v.Parts.Lanes.Busy), goBefore(own, "of its lane")), room.In + span(float64(min(v.Parts.Lanes.Jobs-1, turns+higher))/pace(v.Limits)), true},
		{fmt.Sprintf("waiting for its route %s (%s; %s)", r.Job.Route, limitsText(route.Used), goBefore(byRoute, "on it at the most")), free(route, byRoute), true},
		{fmt.Sprintf("waiting for its lane %s (%s; %s)", r.Job.Lane, limitsText(lane.Used), goBefore(own, "of it")), free(lane, own), false},
	}
	if higher > 0 {
		all[0].why += fmt.Sprintf(", and %s of higher classes", job.JobsText(higher))
	}
	longest := slices.MaxFunc(all, func(a, b turn) int { return cmp.Compare(a.in, b.in) })
	w = Wait{longest.why, max(longest.in, 0), longest.most}
	if ahead.AtLeast {
		w.In = -1
		return w, nil
	}
	if w.In >= time.Second {
		w.Why += ", " + map[bool]string{true: "at most "}[w.Most] + "about " + job.FormatDuration(w.In.Round(time.Second))
	}
	return w, nil
}

// free returns how long until a lane or route has a permit after so many more calls.
func free(l bucket.LaneLook, calls int64) (in time.Duration) {
	if len(l.Used) == 0 {
		return 0
	}
	in = l.Ready.Sub(l.Now)
	for _, u := range l.Used {
		in = max(in, span(float64(calls+1-(u.Limit.N-u.Used))/u.Limit.PerSecond()))
	}
	return in
}

// classesAbove returns a function that reports, by a class's name in flows, whether its jobs go before those of
// this class.
func classesAbove(g config.Gateway, class string) func(string) bool {
	var above []string
	for _, c := range g.Priority.List() {
		name := c.Name
		if c.Usual {
			name = ""
		}
		if name == class || c.Name == class {
			break
		}
		above = append(above, name)
	}
	return func(of string) bool { return slices.Contains(above, of) }
}

func limitsText(used []bucket.LimitUse) string {
	all := make([]string, len(used))
	for i, u := range used {
		all[i] = u.Limit.String()
	}
	return strings.Join(all, " ")
}

// goBefore describes how many jobs go before one.
func goBefore(jobs int64, which string) string {
	switch jobs {
	case 0:
		return "no job " + which + " goes before it"
	case 1:
		return "1 job " + which + " goes before it"
	}
	return fmt.Sprintf("%s jobs %s go before it", job.CountText(jobs), which)
}

func plural(lanes int64) string {
	if lanes == 1 {
		return "1 lane has jobs"
	}
	return job.CountText(lanes) + " lanes have jobs"
}
