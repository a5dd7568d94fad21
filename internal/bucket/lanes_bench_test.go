package bucket

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// BenchmarkLanes is what a slot and its job take of Redis, where one is bound at a time and where sixteen are, beside a gateway without lanes (reserve.lua and
// dequeue.lua). All forms take turns within milliseconds, so whatever else the machine does disturbs all alike. It prints a table: the ratio to the gateway without
// lanes in the same round (median), the time of the scripts by Redis's own count, and that of Redis's main thread with its sockets (both the lower quartile of
// the rounds). -benchtime 100x is a hundred rounds.
func BenchmarkLanes(b *testing.B) {
	client := testkit.Client(b)
	for _, want := range []int64{1, 16} {
		b.Run(fmt.Sprintf("at-once=%d", want), func(b *testing.B) {
			if b.N == 1 {
				return // Go tries it once to see how long it takes
			}
			slots := benchSlice(want) * int64(b.N+benchWarms)
			var forms []*benchForm
			for _, f := range benchForms() {
				f.prepare(b, client, int(slots))
				forms = append(forms, &f)
			}
			b.ResetTimer()
			for round := range b.N + benchWarms {
				for _, f := range forms {
					f.slice(b, want, round >= benchWarms)
				}
			}
			fmt.Printf("\n| %d at once | to no lanes | µs of scripts | µs of Redis |\n|---|---:|---:|---:|\n", want)
			for _, f := range forms {
				fmt.Printf("| %s | %.2f | %.1f | %.1f |\n", f.name, middle(over(f.scripts, forms[0].scripts), 2), middle(f.scripts, 4), middle(f.thread, 4))
			}
		})
	}
}

const (
	benchRate  = 2000 // a second, so that sixteen slots lie within reach
	benchMoves = 510  // µs for each slot, a little more than its share of the second
	benchWarms = 5    // rounds before those that count
)

// benchSlice is how many slots a form binds in a round.
func benchSlice(want int64) int64 { return max(32, 4*want) }

// benchForm is a gateway whose slots are measured.
type benchForm struct {
	name  string
	cfg   PacerConfig
	crowd []benchCrowd
	after func(testing.TB, *benchForm) // when all jobs are in their lanes

	w               *world
	p               *Pacer
	dequeue         *redisdb.Script
	scripts, thread []float64 // µs a slot, round by round
}

// benchCrowd is so many lanes, from one on, with so many jobs each (0 = as many as there are slots) on a route.
type benchCrowd struct {
	from, lanes, each int
	route             string
}

// benchForms are a gateway without lanes, lanes with work, and lanes of which all but one have to wait.
func benchForms() []benchForm {
	limited := &Lanes{Limits: []job.Limit{per(5, time.Second), per(100, time.Minute)}}
	forms := []benchForm{
		{name: "no lanes", crowd: []benchCrowd{{0, 1, 0, ""}}},
		{name: "one lane", cfg: PacerConfig{Lanes: &Lanes{}}, crowd: []benchCrowd{{0, 1, 0, ""}}},
	}
	for _, n := range []int{1000, 10_000, 100_000} {
		forms = append(forms, benchForm{name: fmt.Sprintf("%d lanes of 5/s and 100/m", n), cfg: PacerConfig{Lanes: limited}, crowd: []benchCrowd{{1, n, max(2, 20_000/n), ""}}})
	}
	for _, n := range []int{1000, 10_000, 100_000} {
		forms = append(forms, benchForm{name: fmt.Sprintf("one lane beside %d at their limit", n), cfg: PacerConfig{Lanes: &Lanes{}},
			crowd: []benchCrowd{{0, 1, 0, ""}, {1, n, 1, ""}}, after: throttleOthers})
	}
	shut := Route{Name: "shut", Limits: []job.Limit{per(1, time.Hour)}}
	for _, n := range []int{1000, 10_000, 100_000} {
		forms = append(forms, benchForm{name: fmt.Sprintf("one lane beside %d that want an exhausted route", n), cfg: PacerConfig{Lanes: &Lanes{}, Routes: []Route{shut}},
			crowd: []benchCrowd{{0, 1, 0, ""}, {1, n, 1, "shut"}}, after: func(t testing.TB, f *benchForm) { f.bind(t, 4) }})
	}
	many := benchForm{name: "32 routes, 31 exhausted with 1000 lanes each, one lane elsewhere", cfg: PacerConfig{Lanes: &Lanes{}}, crowd: []benchCrowd{{0, 1, 0, ""}},
		after: func(t testing.TB, f *benchForm) { f.bind(t, 128) }}
	for i := range 31 {
		name := "shut" + strconv.Itoa(i)
		many.cfg.Routes = append(many.cfg.Routes, Route{Name: name, Limits: shut.Limits})
		many.crowd = append(many.crowd, benchCrowd{1 + i*1000, 1000, 1, name})
	}
	return append(forms, many)
}

// prepare queues the jobs, and has all of them sorted into their lanes.
func (f *benchForm) prepare(b testing.TB, client redis.UniversalClient, slots int) {
	f.w = newWorld(b, client, 1)
	f.cfg.Limits, f.cfg.Jitter = []job.Limit{per(benchRate, time.Second)}, 5*time.Millisecond
	f.p, f.dequeue = f.w.pacer(f.cfg), benchDequeue(b)
	for _, c := range f.crowd {
		if c.each == 0 {
			c.each = slots + 1000
		}
		benchJobs(b, f.w, c)
	}
	for f.cfg.Laned() && f.w.client.LLen(context.Background(), f.w.keys.Pending()).Val() > 0 {
		f.bind(b, 1)
	}
	if f.after != nil {
		f.after(b, f)
	}
}

// throttleOthers has all lanes but the first wait.
func throttleOthers(t testing.TB, f *benchForm) {
	text := `
local prefix, x = string.match(KEYS[1], '^spillway:{[^}]*}:'), tonumber(ARGV[1])
local all = redis.call('ZRANGE', prefix .. 'ready::', 0, 1000)
for _, lane in ipairs(all) do
  if lane ~= ARGV[2] then
    local v = cmsgpack.unpack(redis.call('GET', prefix .. 'lane:' .. lane))
    v[1] = x
    redis.call('SET', prefix .. 'lane:' .. lane, cmsgpack.pack(v))
    redis.call('ZREM', prefix .. 'ready::', lane)
    redis.call('ZADD', prefix .. 'throttled', ARGV[1], lane)
  end
end
return #all`
	for left := 2; left > 1; {
		var err error
		if left, err = f.w.client.Eval(context.Background(), text, []string{f.w.keys.Pace()}, f.w.now+3600_000_000, benchLane(0)).Int(); err != nil {
			t.Fatal(err)
		}
	}
}

// bind binds slots, want at a time at most, and returns how many. Time goes on by as much as they take.
func (f *benchForm) bind(t testing.TB, want int64) int64 {
	g := f.w.reserve(f.p, wish{want: want, lead: 500})
	n := int64(len(g.slots))
	if n > 0 && !f.cfg.Laned() {
		k := f.w.keys
		if err := f.dequeue.Run(context.Background(), f.w.client, []string{k.Pending(), k.Paused(), k.Active(), k.Lease(), k.Retries(), k.Replays(), k.Hold(), k.Due()},
			1, k.TaskPrefix(), n, 0, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	f.w.now += benchMoves * max(n, 1)
	return n
}

// slice binds as many slots as a round has, and notes what they took if they count.
func (f *benchForm) slice(b *testing.B, want int64, counts bool) {
	scripts, thread := redisWork(b, f.w.client)
	n := int64(0)
	for n < benchSlice(want) {
		got := f.bind(b, want)
		if got == 0 {
			b.Fatalf("%s: no slot", f.name)
		}
		n += got
	}
	if s, th := redisWork(b, f.w.client); counts {
		f.scripts, f.thread = append(f.scripts, (s-scripts)/float64(n)), append(f.thread, (th-thread)/float64(n))
	}
}

func benchLane(i int) string { return "acct_" + strconv.Itoa(10_000_000+i) }

func benchJobs(b testing.TB, w *world, c benchCrowd) {
	ctx := context.Background()
	pipe := w.client.Pipeline()
	for i := range c.lanes * c.each {
		id := "j" + strconv.FormatInt(w.rng.Int64N(1<<50), 36)
		pipe.HSet(ctx, w.keys.Job(id), record.Short("lane"), benchLane(c.from+i%c.lanes), record.Short("route"), c.route)
		pipe.HSet(ctx, w.keys.Task(id+"~1"), "msg", "m", "state", "pending")
		pipe.LPush(ctx, w.keys.Pending(), id+"~1")
		if i%1000 == 999 || i == c.lanes*c.each-1 {
			if _, err := pipe.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func benchDequeue(b testing.TB) *redisdb.Script {
	text, err := os.ReadFile("../queue/dequeue.lua")
	if err != nil {
		b.Fatal(err)
	}
	return redisdb.NewScript(redisdb.NowLua, string(text))
}

var (
	mainThread = regexp.MustCompile(`used_cpu_(?:sys|user)_main_thread:([0-9.]+)`)
	scriptTime = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)
)

// redisWork is how long Redis's scripts have taken so far, and its main thread with its sockets, in µs.
func redisWork(b *testing.B, c redis.UniversalClient) (scripts, thread float64) {
	text := c.Info(context.Background(), "cpu", "commandstats").Val()
	return numbers(b, scriptTime, text), 1e6 * numbers(b, mainThread, text)
}

// numbers is the sum of the numbers that a pattern finds.
func numbers(b *testing.B, in *regexp.Regexp, text string) (sum float64) {
	for _, m := range in.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += n
	}
	return sum
}

// middle is the part of n of numbers: 2 is their median, 4 their lower quartile.
func middle(of []float64, n int) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/n]
}

// over divides round by round.
func over(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

// BenchmarkLaneBytes is what a lane takes of Redis's memory: with one job that waits, besides the job's own task and record, and when all its jobs were called, as long as its
// windows remember them. -benchtime 1x is once.
func BenchmarkLaneBytes(b *testing.B) {
	const lanes = 5000
	limited := &Lanes{Limits: []job.Limit{per(5, time.Second), per(100, time.Minute)}}
	for _, form := range []struct {
		name string
		of   *Lanes
		uses int
	}{{"no limits", &Lanes{}, 1}, {"5/s and 100/m, 1 use", limited, 1}, {"5/s and 100/m, 5 uses", limited, 5}, {"5/s and 100/m, 15 uses", limited, 15}} {
		b.Run(form.name, func(b *testing.B) {
			f := &benchForm{cfg: PacerConfig{Lanes: form.of}}
			f.prepare(b, testkit.Server(b).Client(), 0)
			ctx, client := context.Background(), f.w.client
			used := func() float64 { return numbers(b, memoryUsed, client.Info(ctx, "memory").Val()) }
			f.bind(b, 1) // Redis knows the scripts from here on
			start := used()
			benchJobs(b, f.w, benchCrowd{0, lanes, form.uses, ""})
			jobs := used()
			for client.LLen(ctx, f.w.keys.Pending()).Val() > 0 {
				f.bind(b, 1)
			}
			active := used()
			for f.bind(b, 16) > 0 || client.ZCard(ctx, f.w.keys.WaitingLanes(nil, nil)[0]).Val() > 0 {
			}
			keys := client.Keys(ctx, strings.TrimSuffix(f.w.keys.Pace(), "pace")+"lane:*").Val()
			var stays time.Duration
			for _, key := range keys {
				ttl := client.PTTL(ctx, key).Val()
				if stays = max(stays, ttl); ttl <= 0 {
					b.Fatalf("%s stays for good", key)
				}
			}
			full := used()
			if err := client.Del(ctx, keys...).Err(); err != nil {
				b.Fatal(err)
			}
			fmt.Printf("%s: %.0f bytes a lane with jobs (and %.0f of the jobs), %.0f idle with history, and 0 after %s at most\n",
				form.name, (active-jobs)/lanes, (jobs-start)/lanes, (full-used())/lanes, stays)
		})
	}
}

var memoryUsed = regexp.MustCompile(`used_memory:(\d+)`)
