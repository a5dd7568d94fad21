package dispatch

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"spillway/internal/config"
	"spillway/internal/job"
)

// A fault of the Redis address that is found only when connecting is reported with its line of the file. An address from a flag has no line.
func TestAnAddressThatCantBeUsedIsNamedByItsLine(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse("x.yaml", []byte("listen: \"\"\nredis: redis-cluster://h:1/3\ngateways:\n  s: {request: {url: \"https://h\"}, leak: {limits: [1/s]}}\n"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const wrong = "the Redis address of a cluster names a database"
	if _, err := Open(t.Context(), cfg, 0); job.CodeOf(err) != job.CodeUsage || err.Error() != "x.yaml:2:8: redis: "+wrong {
		t.Errorf("of the file: %v", err)
	}
	cfg.RedisAt = config.Position{}
	if _, err := Open(t.Context(), cfg, 0); job.CodeOf(err) != job.CodeUsage || err.Error() != wrong {
		t.Errorf("of a flag: %v", err)
	}
}

// If there are thousands of gateways, a hint names some of them.
func TestAHintNamesSomeGateways(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{1: "it has: m0000", mostNamed + 1: ", m0019 and 1 more, which dispatcher gateway list names"} {
		cfg := &config.Config{}
		for i := range n {
			cfg.Gateways = append(cfg.Gateways, config.Gateway{Name: fmt.Sprintf("m%04d", i)})
		}
		var coded *job.Error
		if err := NoGateway(cfg, "x"); !errors.As(err, &coded) || !strings.HasSuffix(coded.Hint, want) || strings.Contains(coded.Hint, "m0020") {
			t.Errorf("%d: %v", n, coded)
		}
	}
}
