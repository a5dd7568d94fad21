package console

import (
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/httpapi"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// BenchmarkTheFrontPageOf3000Gateways measures the first page of the console with 3,000 busy gateways, and the CPU time of Redis for it.
// go test -run - -bench FrontPage -benchtime 20x ./internal/console
func BenchmarkTheFrontPageOf3000Gateways(b *testing.B) {
	const n = 3000
	server := testkit.Server(b)
	db, err := redisdb.Open(b.Context(), server.URL(), redisdb.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	var text strings.Builder
	fmt.Fprintf(&text, "redis: %s\ndefaults:\n  leak: {limits: [5/s]}\ngateways:\n", server.URL())
	for i := range n {
		fmt.Fprintf(&text, "  m%04d: {request: {url: \"http://127.0.0.1:1/\", idempotency_prefix: \"m%04[1]d-\"}}\n", i)
	}
	cfg, err := config.Parse("x.yaml", []byte(text.String()), config.Options{Secrets: true})
	if err != nil {
		b.Fatal(err)
	}
	listed := make([]string, n)
	for i, g := range cfg.Gateways {
		listed[i] = g.Name
	}
	busy(b, db.Client, listed)
	guard := httpapi.NewGuard("")
	c := New(Config{Redis: db.Client, Gateways: cfg.Gateways, Listed: func() []string { return listed }, Guard: guard, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	b.Cleanup(func() { _ = c.Stop(b.Context()) })
	before := redisTime(b, db.Client)
	b.ReportAllocs()
	for b.Loop() {
		page := httptest.NewRecorder()
		c.ServeHTTP(page, httptest.NewRequest("GET", "http://127.0.0.1/", nil))
		if page.Code != 200 || !strings.Contains(page.Body.String(), "of 3\u202f000 gateways") {
			b.Fatalf("%d %s", page.Code, page.Body)
		}
	}
	b.ReportMetric(1000*(redisTime(b, db.Client)-before)/float64(b.N), "redis-ms/op")
}

// redisTime returns the CPU time of Redis, in seconds.
func redisTime(b *testing.B, c redis.UniversalClient) (all float64) {
	b.Helper()
	text := c.Info(b.Context(), "cpu").Val()
	for _, kind := range []string{"used_cpu_user:", "used_cpu_sys:"} {
		var one float64
		_, rest, _ := strings.Cut(text, kind)
		_, _ = fmt.Sscan(rest, &one)
		all += one
	}
	return all
}

// busy writes the data of busy gateways: jobs in the queue, calls in flight, counters of calls, and a slow dispatcher.
func busy(b *testing.B, c redis.UniversalClient, names []string) {
	b.Helper()
	now := time.Now()
	span := now.UnixMicro() / 5_000_000
	for from := 0; from < len(names); from += 100 {
		_, err := c.Pipelined(b.Context(), func(p redis.Pipeliner) error {
			for _, name := range names[from : from+100] {
				k := redisdb.NewKeys(name)
				p.SAdd(b.Context(), redisdb.Gateways, name)
				p.SAdd(b.Context(), redisdb.AsynqQueues, name)
				p.HSet(b.Context(), k.Alive(), "line", "x", "at", now.Add(time.Hour).UnixMicro(), "v", 1)
				p.HSet(b.Context(), k.Counters(), "accepted", 60, "done", 35)
				p.HSet(b.Context(), k.Slow(), "host.1", fmt.Sprint(now.UnixMicro(), now.Add(time.Hour).UnixMicro(), 100))
				for i := range int64(24) {
					p.HSet(b.Context(), k.Rate(), fmt.Sprint(span-i), 25)
				}
				for i := range 20 {
					p.LPush(b.Context(), k.Pending(), fmt.Sprint("job-", i, "~1"))
				}
				for i := range 5 {
					p.ZAdd(b.Context(), k.Open(), redis.Z{Score: float64(now.UnixMicro()), Member: fmt.Sprint("job-", 20+i)})
					p.LPush(b.Context(), k.Active(), fmt.Sprint("job-", 20+i, "~1"))
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
