package queue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// classed is a gateway's queue with classes, and the plain model of what is pulled.
type classed struct {
	t       *testing.T
	k       taskKeys
	order   order
	classes []job.Class
	lines   map[string][]string // by class, the next one first
	pulled  float64
	by      map[string]float64 // when a class with a floor is to be served
	n       int
}

func newClassed(t *testing.T, classes ...job.Class) *classed {
	t.Helper()
	gw := testkit.Gateway(t)
	return &classed{t: t, k: newTaskKeys(gw), order: orderOf(redisdb.NewKeys(gw), classes), classes: classes, lines: map[string][]string{}, by: map[string]float64{}}
}

func (c *classed) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// put adds tasks at the tail of a class.
func (c *classed) put(class job.Class, n int) {
	c.t.Helper()
	line := c.k.First(class.Name)
	if class.Usual {
		line = c.k.Pending()
	}
	for range n {
		c.n++
		id := fmt.Sprintf("%s-%d~1", class.Name, c.n)
		c.must(testkit.Client(c.t).HSet(c.t.Context(), c.k.Task(id), "msg", id, "state", "pending").Err())
		c.must(testkit.Client(c.t).LPush(c.t.Context(), line, id).Err())
		c.lines[class.Name] = append(c.lines[class.Name], id)
	}
}

// pull pulls up to n tasks, and compares them with what the model pulls.
func (c *classed) pull(n int) (ids []string) {
	c.t.Helper()
	tasks, err := pull(c.t.Context(), testkit.Client(c.t), c.k, wanted{now: 2_000_000_000_000_000, most: n, order: c.order})
	c.must(err)
	for _, task := range tasks {
		ids = append(ids, task.id)
	}
	if want := c.model(n); !slices.Equal(ids, want) {
		c.t.Fatalf("pulled %v, the model %v", ids, want)
	}
	return ids
}

func (c *classed) model(n int) (ids []string) {
	for _, class := range c.classes {
		if _, known := c.by[class.Name]; !known && class.Floor > 0 {
			c.by[class.Name] = c.pulled + 100/float64(class.Floor)
		}
	}
	for len(ids) < n {
		next, owed := "", math.Inf(1)
		for _, class := range c.classes {
			if len(c.lines[class.Name]) == 0 {
				continue
			}
			if by := c.by[class.Name]; class.Floor > 0 && by <= c.pulled && by < owed {
				next, owed = class.Name, by
			}
			if next == "" {
				next = class.Name
			}
		}
		if next == "" {
			return ids
		}
		ids, c.lines[next] = append(ids, c.lines[next][0]), c.lines[next][1:]
		for _, class := range c.classes {
			switch every := 100 / float64(class.Floor); {
			case class.Floor == 0:
			case class.Name == next:
				c.by[next] = math.Round((min(c.by[next], c.pulled)+every)*1000) / 1000
			}
		}
		for _, class := range c.classes {
			if class.Floor > 0 && len(c.lines[class.Name]) == 0 {
				c.by[class.Name] = math.Round(max(c.by[class.Name], c.pulled+1+100/float64(class.Floor))*1000) / 1000
			}
		}
		c.pulled++
	}
	return ids
}

// The highest class with jobs is pulled first, even before many other jobs, and the order within a class is kept.
func TestTheHighestClassGoesFirst(t *testing.T) {
	t.Parallel()
	urgent, normal, batch := job.Class{Name: "urgent"}, job.Class{Name: "normal", Usual: true}, job.Class{Name: "batch"}
	c := newClassed(t, urgent, normal, batch)
	c.put(batch, 50)
	c.put(normal, 3)
	c.put(urgent, 2)
	if got := strings.Join(c.pull(8), " "); got != "urgent-54~1 urgent-55~1 normal-51~1 normal-52~1 normal-53~1 batch-1~1 batch-2~1 batch-3~1" {
		t.Error(got)
	}
	c.put(urgent, 1)
	if got := c.pull(1)[0]; got != "urgent-56~1" {
		t.Error(got)
	}
	if n := testkit.Client(t).ZCard(t.Context(), c.k.lease).Val(); n != 9 {
		t.Errorf("%d leases", n)
	}
}

// Whatever jobs come and when, the pulls are those of the model. Of any n pulls during which a class always has jobs, it gets at least its floor, less
// one for each class and one.
func TestClassesAreTheirModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // a test
		names := []string{"a", "b", "c", "d"}[:2+r.IntN(3)]
		classes, left := make([]job.Class, len(names)), int64(100)
		for i, name := range names {
			classes[i].Name = name
			if r.IntN(4) > 0 {
				classes[i].Floor = r.Int64N(left + 1)
				left -= classes[i].Floor
			}
		}
		classes[r.IntN(len(classes))].Usual = true
		c, all := newClassed(t, classes...), []string{}
		waits := map[string][]bool{} // whether a class had jobs before each pull
		for range 120 {
			if r.IntN(3) > 0 {
				c.put(classes[r.IntN(len(classes))], r.IntN(6))
			}
			for range r.IntN(7) {
				for _, class := range classes {
					waits[class.Name] = append(waits[class.Name], len(c.lines[class.Name]) > 0)
				}
				got := c.pull(1)
				if all = append(all, got...); len(got) == 0 {
					for _, class := range classes {
						waits[class.Name] = waits[class.Name][:len(all)]
					}
				}
			}
			if r.IntN(5) == 0 { // many at once are as many one by one; who waited in between is not known
				all = append(all, c.pull(1+r.IntN(9))...)
				for _, class := range classes {
					for len(waits[class.Name]) < len(all) {
						waits[class.Name] = append(waits[class.Name], false)
					}
				}
			}
		}
		for _, class := range classes {
			for from := range all {
				served := 0
				for n := from; n < len(all) && waits[class.Name][n]; n++ {
					if strings.HasPrefix(all[n], class.Name) {
						served++
					}
					if floor := float64(class.Floor)/100*float64(n+1-from) - 1 - float64(len(classes)*int(class.Floor))/100; float64(served) < floor-0.01 {
						t.Fatalf("seed %d: class %s got %d of pulls %d to %d, and its floor is %d %%", seed, class.Name, served, from, n, class.Floor)
					}
				}
			}
		}
	}
}

// Jobs that were called before take turns with those that were not, whatever the classes of these.
func TestCalledJobsTakeTurnsWithClasses(t *testing.T) {
	t.Parallel()
	urgent := job.Class{Name: "urgent"}
	c := newClassed(t, urgent, job.Class{Name: "normal", Usual: true})
	c.put(urgent, 3)
	for i := range 3 {
		c.must(testkit.Client(t).HSet(t.Context(), c.k.Task(fmt.Sprintf("r%d~2", i)), "msg", "m", "state", "pending").Err())
		c.must(testkit.Client(t).LPush(t.Context(), c.k.Retries(), fmt.Sprintf("r%d~2", i)).Err())
	}
	tasks, err := pull(t.Context(), testkit.Client(t), c.k, wanted{now: 2_000_000_000_000_000, most: 6, order: c.order})
	c.must(err)
	var got []string
	for _, task := range tasks {
		got = append(got, task.id)
	}
	if strings.Join(got, " ") != "r0~2 urgent-1~1 r1~2 urgent-2~1 r2~2 urgent-3~1" {
		t.Error(got)
	}
}

// A job that was pulled, but never taken by asynq, returns to the head of its class's line.
func TestWhatIsNotTakenGoesBackToItsClass(t *testing.T) {
	t.Parallel()
	urgent := job.Class{Name: "urgent"}
	c := newClassed(t, urgent, job.Class{Name: "normal", Usual: true})
	c.put(urgent, 2)
	task := c.pull(1)[0]
	id, _, _ := job.ParseTaskID(task)
	r := testkit.Client(t)
	c.must(r.HSet(t.Context(), c.k.Job(id), record.Short("state"), "queued", record.Short("priority"), "urgent").Err())
	c.must(r.Del(t.Context(), c.k.Classes()).Err()) // a dispatcher without that class has put the others into the usual line
	c.must(unpullScript.Run(t.Context(), r, []string{c.k.active, c.k.lease, c.k.Due(), c.k.Task(task), c.k.Retries(), c.k.Job(id), c.k.Classes()}, task).Err())
	if got := r.LRange(t.Context(), c.k.First("urgent"), 0, -1).Val(); len(got) != 2 || got[1] != task {
		t.Errorf("the line of urgent jobs has %v", got)
	}
	if classes, err := redisdb.ClassesOf(t.Context(), r, c.k.Keys); err != nil || !slices.Contains(classes, "urgent") {
		t.Errorf("nobody looks for its line: %v, %v", classes, err)
	}
}
