package bucket

import (
	"context"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// picked asks for slots three times, as an idle gateway's first ones come a moment later, and returns the tasks that came with them, in their order.
func (w *lanesWorld) picked(p *Pacer) (tasks []string) {
	for range 3 {
		for _, s := range w.reserve(p, wish{want: 8, lead: 1000}).slots {
			tasks = append(tasks, s.Task)
		}
		w.now += 500_000
	}
	return tasks
}

// A gateway whose lanes are taken out of the file, and that has limits of routes still, calls the jobs of lanes for which something was set live, and of those that were
// paused: nobody could take that back any more.
func TestWhatWasSetForLanesGoesWithThem(t *testing.T) {
	t.Parallel()
	client := testkit.Client(t)
	yes := true
	for name, change := range map[string]OverrideChange{
		"limits": {Limits: &[]job.Limit{per(3, time.Second)}},
		"paused": {Paused: &yes},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{}, Routes: []Route{{Name: "r", Limits: []job.Limit{per(50, time.Second)}}}}
			w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: cfg, processes: 1})
			if err := w.processes[0].OverrideLane(context.Background(), "m", change); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"a", "b"} {
				w.put(laneJob{id: id, generation: 1, cost: 1, flow: job.Flow{Lane: "m"}}, 1, w.keys.Pending(), true)
			}
			cfg.Lanes = nil
			if tasks := w.picked(w.pacer(cfg)); len(tasks) != 2 {
				t.Errorf("%v were called of two jobs", tasks)
			}
		})
	}
}
