package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// sharing returns rigs whose servers share one asynq server. handle is what their handlers do.
func sharing(t *testing.T, n int, handle func(r *rig, d job.Delivery) error) []*rig {
	t.Helper()
	first := setup(t)
	cs := NewConsumers(first.c, slog.New(slog.DiscardHandler))
	cs.most = 1
	var all []*rig
	for range n {
		r := &rig{t: t, c: first.c, gw: testkit.Gateway(t), pacer: newFakePacer()}
		r.keys = redisdb.NewKeys(r.gw)
		r.srv = NewServer(r.c, ServerConfig{Gateway: r.gw, Concurrency: 20, Pacer: r.pacer, Grace: 20 * time.Second, Consumers: cs, Log: slog.New(slog.DiscardHandler),
			Handle: func(ctx context.Context, d job.Delivery) error { _ = r.handle(ctx, d); return handle(r, d) }})
		all = append(all, r)
	}
	t.Cleanup(func() {
		var ending sync.WaitGroup
		for _, r := range all {
			ending.Go(func() { r.srv.Stop(context.Background()) })
		}
		ending.Wait()
		cs.Close()
	})
	return all
}

func (r *rig) leaseOf(id string) time.Duration {
	score, err := r.c.ZScore(context.Background(), r.keys.Lease(), id).Result()
	if err != nil {
		return 0
	}
	return time.Until(time.Unix(int64(score), 0))
}

// Jobs of two gateways with the same ids are in flight at once, under one asynq server. Each is delivered once, to its own gateway's handler, and its lease is
// extended while it is handled, also after the other job has ended.
func TestJobsOfTheSameIDAtTwoGatewaysAreTwo(t *testing.T) {
	t.Parallel()
	hang := map[string]chan struct{}{}
	rigs := sharing(t, 2, func(r *rig, _ job.Delivery) error { <-hang[r.gw]; return nil })
	one, other := rigs[0], rigs[1]
	for _, r := range rigs {
		hang[r.gw] = make(chan struct{})
		r.put(1, 3)
		r.allow(3)
	}
	var let sync.Once
	t.Cleanup(func() { let.Do(func() { close(hang[other.gw]) }) })
	for _, r := range rigs {
		r.srv.Start()
	}
	if one.srv.consumer != other.srv.consumer {
		t.Fatal("they have an asynq server each")
	}
	shorten := func(r *rig) {
		for i := 1; i <= 3; i++ {
			r.c.ZAddXX(t.Context(), r.keys.Lease(), redis.Z{Member: fmt.Sprintf("j%d~1", i), Score: float64(time.Now().Add(12 * time.Second).Unix())})
		}
	}
	kept := func(r *rig) bool {
		return r.leaseOf("j1~1") > 20*time.Second && r.leaseOf("j2~1") > 20*time.Second && r.leaseOf("j3~1") > 20*time.Second
	}
	for _, r := range rigs {
		testkit.Eventually(t, 20*time.Second, "three deliveries", func() bool { return len(r.deliveries()) == 3 })
		shorten(r)
	}
	testkit.Eventually(t, 20*time.Second, "the leases of both to be put off", func() bool { return kept(one) && kept(other) })
	close(hang[one.gw])
	testkit.Eventually(t, 20*time.Second, "one's jobs to end", func() bool { return one.c.ZCard(t.Context(), one.keys.Lease()).Val() == 0 })
	shorten(other)
	testkit.Eventually(t, 20*time.Second, "the other's leases to be put off all the same", func() bool { return kept(other) })
	if n := one.c.Exists(t.Context(), one.keys.Task("j1~1")).Val() + one.c.LLen(t.Context(), one.keys.Active()).Val(); n != 0 {
		t.Error("a task that was done is left")
	}
	if n := other.c.LLen(t.Context(), other.keys.Active()).Val(); n != 3 {
		t.Errorf("%d of the other's tasks are active, want 3", n)
	}
	let.Do(func() { close(hang[other.gw]) })
	testkit.Eventually(t, 20*time.Second, "the other's jobs to end", func() bool { return other.c.LLen(t.Context(), other.keys.Active()).Val() == 0 })
	for _, r := range rigs {
		var got []string
		for _, d := range r.deliveries() {
			got = append(got, d.TaskID)
			if d.Slot.Zero() || d.Foreign {
				t.Errorf("%s came with the slot %d, foreign: %v", d.TaskID, d.Slot.At, d.Foreign)
			}
		}
		slices.Sort(got)
		if want := []string{"j1~1", "j2~1", "j3~1"}; !slices.Equal(got, want) {
			t.Errorf("%s got %v, want %v", r.gw, got, want)
		}
	}
}

// A task whose handler failed and a foreign task are put aside at their own gateway under their own ids, as with a single gateway.
func TestWhatIsPutAsideHasItsOwnID(t *testing.T) {
	t.Parallel()
	rigs := sharing(t, 2, func(*rig, job.Delivery) error { return errors.New("not written down") })
	for _, r := range rigs {
		r.put(1, 1)
		r.foreign("late", overdue)
		r.allow(2)
		r.srv.Start()
	}
	for _, r := range rigs {
		testkit.Eventually(t, 20*time.Second, "both to be put aside", func() bool { return r.c.ZCard(t.Context(), r.keys.AsynqRetry()).Val() == 2 })
		if got := r.c.ZRange(t.Context(), r.keys.AsynqRetry(), 0, -1).Val(); !slices.Contains(got, "j1~1") || !slices.Contains(got, "late") {
			t.Errorf("put aside: %q", got)
		}
		for _, id := range []string{"j1~1", "late"} {
			if m, ok := parseMessage([]byte(r.c.HGet(t.Context(), r.keys.Task(id), "msg").Val())); !ok || m.id != id {
				t.Errorf("the message of %s is that of %q", id, m.id)
			}
		}
		if strays, err := Strays(t.Context(), r.c, r.gw); err != nil || len(strays) != 1 || strays[0].TaskID != "late" { // ours is the ledger's
			t.Errorf("strays %v, %v", strays, err)
		}
		if len(r.deliveries()) != 1 || len(r.srv.src.coming)+len(r.srv.src.ending) != 0 {
			t.Errorf("%d deliveries, %d that are to come, %d that end", len(r.deliveries()), len(r.srv.src.coming), len(r.srv.src.ending))
		}
	}
}

// A gateway that stops waits only for its own jobs in hand. The other gateways continue.
func TestOneGatewayStopsWithoutTheOthers(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	var slow *rig
	rigs := sharing(t, 3, func(r *rig, _ job.Delivery) error {
		if r == slow {
			<-hang
		}
		return nil
	})
	var let sync.Once
	t.Cleanup(func() { let.Do(func() { close(hang) }) })
	slow = rigs[0]
	for _, r := range rigs {
		r.put(1, 2)
		r.allow(1)
		r.srv.Start()
	}
	for _, r := range rigs {
		testkit.Eventually(t, 20*time.Second, "a delivery", func() bool { return len(r.deliveries()) == 1 })
	}
	begun := time.Now()
	rigs[1].srv.Stop(t.Context())
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it waited %v for another one's job", took)
	}
	stopped := make(chan struct{})
	go func() { slow.srv.Stop(context.Background()); close(stopped) }()
	testkit.Eventually(t, 20*time.Second, "the stop to have begun", func() bool { return slow.srv.src.stop.Err() != nil })
	select {
	case <-stopped:
		t.Error("the stop does not wait for the job in hand")
	default:
	}
	rigs[2].allow(1)
	testkit.Eventually(t, 20*time.Second, "the next job of a gateway that goes on", func() bool { return len(rigs[2].deliveries()) == 2 })
	let.Do(func() { close(hang) })
	<-stopped
	for _, r := range rigs[:2] {
		if n := r.c.LLen(t.Context(), r.keys.Active()).Val() + r.c.LLen(t.Context(), r.keys.Pending()).Val(); n != 1 {
			t.Errorf("%d tasks are left, want the one that nobody pulled", n)
		}
	}
}

// A server that stops returns the slots it gets.
func TestAServerThatStopsKeepsNoSlot(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.srv.src.wary, r.srv.src.resting = true, 1 // a pull has failed: the slots wait
	r.srv.src.waiting = true
	r.srv.src.mu.Lock()
	r.srv.src.beside(r.srv.src.await)
	r.srv.src.mu.Unlock()
	r.allow(1)
	testkit.Eventually(t, 20*time.Second, "the slot", func() bool {
		r.srv.src.mu.Lock()
		defer r.srv.src.mu.Unlock()
		return len(r.srv.src.slots) == 1
	})
	r.srv.Stop(t.Context())
	if got := fmt.Sprint(r.pacer.returned()); got != "[1]" {
		t.Errorf("slots %s came back", got)
	}
}

// A gateway never has more jobs in hand than it may, even if the asynq server has room for those of other gateways.
func TestAGatewayHasNoMoreInHandThanItMay(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	rigs := sharing(t, 2, func(*rig, job.Delivery) error { <-hang; return nil })
	var let sync.Once
	t.Cleanup(func() { let.Do(func() { close(hang) }) })
	r := rigs[0]
	r.srv.consumer.tidied = time.Now().Add(time.Hour) // that would pull, too
	r.put(1, 25)
	r.allow(25)
	r.srv.Start()
	testkit.Eventually(t, 20*time.Second, "twenty in hand", func() bool { return len(r.deliveries()) == 20 })
	if n := r.c.LLen(t.Context(), r.keys.Active()).Val(); n != 20 {
		t.Errorf("%d were pulled, want as many as may be in hand: 20", n)
	}
	let.Do(func() { close(hang) })
	testkit.Eventually(t, 20*time.Second, "the others", func() bool { return len(r.deliveries()) == 25 })
}

// If leases could not be extended, asynq gets the error the next time, and only for that gateway.
func TestALeaseThatWasNotPutOffIsTold(t *testing.T) {
	t.Parallel()
	r := setup(t)
	c, bad, good := r.srv.consumer, r.keys.Active(), r.keys.Lease()
	r.c.Set(t.Context(), bad, "no sorted set", 0)
	r.c.ZAdd(t.Context(), good, redis.Z{Member: "j1~1", Score: 1})
	told := func(key string) error {
		err := c.ZAddXX(t.Context(), key, redis.Z{Member: r.srv.mark + "j1~1", Score: 7}).Err()
		c.leases.sending.Wait()
		return err
	}
	for i, want := range []bool{false, true, true} {
		if err := told(bad); (err != nil) != want {
			t.Errorf("try %d: %v", i, err)
		}
		if err := told(good); err != nil {
			t.Error(err)
		}
	}
	if score := r.c.ZScore(t.Context(), good, "j1~1").Val(); score <= 1 {
		t.Error("the lease was not extended")
	}
}

// The ids that asynq sees consist of a mark and the task's own id, whatever characters that has.
func TestAMarkComesOffAgain(t *testing.T) {
	t.Parallel()
	for id, want := range map[string][2]string{
		"stripe/1/a~1":        {"stripe/1/", "a~1"},
		"stripe/1/a/b/c~1":    {"stripe/1/", "a/b/c~1"},
		"stripe/1/":           {"stripe/1/", ""},
		"no mark":             {"", "no mark"},
		"half/of one":         {"", "half/of one"},
		"":                    {"", ""},
		"all the gateways/z/": {"all the gateways/z/", ""},
	} {
		if mark, task := unmarked(id); mark != want[0] || task != want[1] {
			t.Errorf("%q is %q and %q", id, mark, task)
		}
	}
}

// Somebody who may write only into one gateway's queue can put a task there that names another gateway. The task never affects that gateway.
func TestATaskThatNamesAnotherGatewayIsOfItsOwn(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	var victim *rig
	rigs := sharing(t, 2, func(r *rig, _ job.Delivery) error {
		if r == victim {
			<-hang
			return nil
		}
		return errors.New("not written down")
	})
	one := rigs[0]
	victim = rigs[1]
	t.Cleanup(func() { close(hang) })
	victim.put(1, 2)
	victim.allow(2)
	victim.srv.Start()
	testkit.Eventually(t, 20*time.Second, "two deliveries", func() bool { return len(victim.deliveries()) == 2 })
	for _, id := range []string{"j1~1", "j2~1"} {
		msg, err := NewEncoder(victim.gw).Encode(id)
		if err != nil {
			t.Fatal(err)
		}
		if id == "j2~1" {
			msg = append(msg, Moved(msg, victim.gw)...) // each field is there twice, and the last one counts
		}
		one.c.HSet(t.Context(), one.keys.Task(id), "msg", msg, "state", "pending", "pending_since", 1)
		one.c.LPush(t.Context(), one.keys.Pending(), id)
	}
	one.allow(2)
	one.srv.Start()
	testkit.Eventually(t, 20*time.Second, "both to be put aside", func() bool { return one.c.ZCard(t.Context(), one.keys.AsynqRetry()).Val() == 2 })
	if n := victim.c.LLen(t.Context(), victim.keys.Active()).Val() + victim.c.ZCard(t.Context(), victim.keys.Lease()).Val(); n != 4 {
		t.Errorf("the other gateway has %d of 2 tasks and 2 leases", n)
	}
	if n := victim.c.ZCard(t.Context(), victim.keys.AsynqRetry()).Val() + victim.c.LLen(t.Context(), victim.keys.Pending()).Val(); n != 0 {
		t.Errorf("%d tasks were put into the other gateway's queue", n)
	}
}

// Gateways with jobs take turns: one that always has another job does not delay the others.
func TestGatewaysTakeTurns(t *testing.T) {
	t.Parallel()
	rigs := sharing(t, 3, func(*rig, job.Delivery) error { return nil })
	c := rigs[0].srv.consumer
	c.srv = c.newAsynq() // never begun: the test comes for the jobs
	for _, r := range rigs {
		e := NewEncoder(r.gw)
		for i := range 4 {
			id := job.TaskID(fmt.Sprintf("j%d", i), 1)
			msg, err := e.Encode(id)
			if err != nil {
				t.Fatal(err)
			}
			r.srv.src.jobs = append(r.srv.src.jobs, pulled{id, string(msg)})
		}
		c.offer(r.srv)
	}
	var got, want []string
	for i := range 4 {
		for _, r := range rigs {
			want = append(want, fmt.Sprintf("%s j%d~1", r.gw, i))
			text, err := c.first(t.Context()).Text()
			if err != nil {
				t.Fatal(err)
			}
			m, _ := parseMessage([]byte(text))
			mark, taskID := unmarked(m.id)
			got = append(got, mark[:strings.Index(mark, markEnd)]+" "+taskID)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, r := range rigs { // no handler comes for them
		r.srv.src.mu.Lock()
		clear(r.srv.src.coming)
		r.srv.src.mu.Unlock()
	}
}
