package dispatch

import (
	"log/slog"
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/redisdb"
)

func TestGarbageIsNotCollectedBeforeThereIsMuchOfIt(t *testing.T) {
	t.Parallel()
	if _, err := New(Params{DB: &redisdb.DB{}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(goal)
	if got := goal[0].Value.Uint64(); got < 2*ballastSize {
		t.Errorf("the collector begins at %d MiB, ballast included: want at least %d", got>>20, 2*ballastSize>>20)
	}
}

func TestThousandsOfGatewaysLeaveLessGarbage(t *testing.T) {
	t.Parallel()
	for gateways, want := range map[int]int{0: 100, 1: 100, 1500: 100, 2000: 75, 3000: 50, 100_000: 50} {
		if got := garbage(gateways); got != want {
			t.Errorf("%d gateways: %d %%, want %d", gateways, got, want)
		}
	}
}
