package bucket

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// BenchmarkLanes is the processor time that Redis takes for a slot and its job, where one is bound at a time and where sixteen are: without lanes (reserve.lua and
// dequeue.lua), and with so many lanes that have jobs. It also says how many bytes a lane with one job takes, but for the task and the record.
func BenchmarkLanes(b *testing.B) {
	for _, want := range []int64{1, 16} {
		for _, lanes := range []int{0, 1, 1000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("at-once=%d/lanes=%d", want, lanes), func(b *testing.B) { benchLanes(b, want, lanes) })
		}
	}
}

func benchLanes(b *testing.B, want int64, lanes int) {
	ctx, client := context.Background(), testkit.Client(b)
	w := newWorld(b, client, 1)
	cfg := PacerConfig{Limits: []job.Limit{per(1000, time.Second)}, Jitter: 5 * time.Millisecond}
	if lanes > 0 {
		cfg.Lanes = &Lanes{Limits: []job.Limit{per(5, time.Second), per(100, time.Minute)}}
	}
	if lanes == 1 {
		cfg.Lanes.Limits = nil
	}
	p := w.pacer(cfg)
	const slots = 2000
	benchJobs(b, w, max(lanes, slots+200), max(lanes, 1))
	tasks := memory(b, client)
	dequeue := benchDequeue(b)
	ask := func(want int64) int64 {
		g := w.reserve(p, wish{want: want, lead: 500})
		if lanes == 0 && len(g.slots) > 0 {
			if err := dequeue.Run(ctx, client, []string{w.keys.Pending(), w.keys.Paused(), w.keys.Active(), w.keys.Lease(), w.keys.Retries(), w.keys.Replays(), w.keys.Hold(), w.keys.Due()},
				1, w.keys.TaskPrefix(), len(g.slots), 0).Err(); err != nil {
				b.Fatal(err)
			}
		}
		w.now += max(g.hint.Microseconds(), 900*int64(len(g.slots)))
		return int64(len(g.slots))
	}
	for range 2 + lanes/500 { // all are sorted by then
		ask(1)
	}
	lane := float64(memory(b, client)-tasks) / float64(max(lanes, 1))
	b.ResetTimer()
	for range b.N {
		begun, done := processor(b, client), int64(0)
		for done < slots/2 {
			done += ask(want)
		}
		b.ReportMetric(float64(processor(b, client)-begun)/float64(done), "redis-µs/slot")
		b.StopTimer()
		benchJobs(b, w, slots, max(lanes, 1))
		for range slots / 500 {
			ask(1)
		}
		b.StartTimer()
	}
	if lanes >= slots { // with fewer a lane has several jobs
		b.ReportMetric(lane, "B/lane")
	}
}

func benchJobs(b *testing.B, w *world, n, lanes int) {
	ctx := context.Background()
	pipe := w.client.Pipeline()
	for i := range n {
		id := "j" + strconv.FormatInt(w.rng.Int64N(1<<50), 36)
		pipe.HSet(ctx, w.keys.Job(id), record.Short("lane"), "acct_"+strconv.Itoa(10_000_000+i%lanes))
		pipe.HSet(ctx, w.keys.Task(id+"~1"), "msg", "m", "state", "pending")
		pipe.LPush(ctx, w.keys.Pending(), id+"~1")
		if i%1000 == 999 || i == n-1 {
			if _, err := pipe.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func benchDequeue(b *testing.B) *redisdb.Script {
	text, err := os.ReadFile("../queue/dequeue.lua")
	if err != nil {
		b.Fatal(err)
	}
	return redisdb.NewScript(string(text))
}

var mainThread = regexp.MustCompile(`used_cpu_(?:sys|user)_main_thread:([0-9.]+)`)

// processor is the time of Redis's main thread so far, in µs.
func processor(b *testing.B, c redis.UniversalClient) (us float64) {
	for _, m := range mainThread.FindAllStringSubmatch(c.Info(context.Background(), "cpu").Val(), -1) {
		s, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		us += s * 1e6
	}
	return us
}

var usedMemory = regexp.MustCompile(`used_memory:(\d+)`)

func memory(b *testing.B, c redis.UniversalClient) int64 {
	n, err := strconv.ParseInt(usedMemory.FindStringSubmatch(c.Info(context.Background(), "memory").Val())[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
