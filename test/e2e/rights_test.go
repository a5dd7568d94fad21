package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/provider"
)

var aclCommand = regexp.MustCompile(`(?m)^    redis-cli (ACL SETUSER spillway .*)$`)

// docs/configuration.md names the least rights in Redis. With these alone a job goes all the way, and people can see
// and steer it.
func TestTheDocumentedRightsInRedisAreEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    amount: {field: amount, currency: currency}\n    leak: {limits: [100/s]}\n    replay: manual\n")
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	found := aclCommand.FindSubmatch(doc)
	if found == nil {
		t.Fatal("docs/configuration.md has no line with redis-cli ACL SETUSER spillway")
	}
	var args []any
	for word := range strings.FieldsSeq(string(found[1])) {
		args = append(args, strings.Trim(word, "'"))
	}
	if err := w.redis.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	w.config = w.file("least.yaml", strings.Replace(string(file), "redis: redis://", "redis: redis://spillway:PASSWORD@", 1))

	pay := []string{"--reason", "refused"}
	w.provider.Set(provider.Config{Decline: 1})
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("a.ndjson", 20), "--batch", "b1", "-q")
	run := w.dispatcher()
	w.shown(t, time.Minute, "all to be refused", func() bool { return w.status().Parked["refused"] == 20 })
	w.provider.Set(provider.Config{})
	for _, args := range [][]string{
		{"status"}, {"batch", "b1"}, {"batch", "b1", "--export"}, {"batch", "pause", "b1", "--why", "x"}, {"batch", "resume", "b1", "--why", "x"},
		{"job", "inv-00001"}, {"dlq", "list"}, {"dlq", "stats"}, {"dlq", "show", "inv-00001"}, {"dlq", "export"},
		{"dlq", "resolve", "--not-done", "--why", "x"}, {"dlq", "discard", "--id", "inv-00020", "--why", "x", "--yes"},
		{"pause", "-g", "stripe", "--why", "x"}, {"resume", "-g", "stripe"}, {"limit", "set", "-g", "stripe", "50/s"}, {"limit", "reset", "-g", "stripe"},
		append([]string{"dlq", "replay", "--yes"}, pay...), {"dlq", "history"},
	} {
		w.ok("dispatcher", args...)
	}
	w.emptied(t, time.Minute, 19)
	w.ok("dispatcher", "audit")
	w.do("dispatcher", "doctor")
	run.stop()
	denied, err := w.redis.Client().Do(t.Context(), "ACL", "LOG").Slice()
	if err != nil || len(denied) > 0 {
		t.Errorf("Redis has denied %v (%v)", denied, err)
	}
	spillway := redis.NewClient(&redis.Options{Addr: w.redis.Addr(), Username: "spillway", Password: "PASSWORD"})
	defer spillway.Close()
	for _, args := range [][]any{{"FLUSHALL"}, {"KEYS", "*"}, {"CONFIG", "SET", "maxmemory", "1"}, {"SET", "other", "1"}, {"ACL", "LIST"}, {"SHUTDOWN", "NOSAVE"}} {
		if err := spillway.Do(t.Context(), args...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%v is not denied: %v", args, err)
		}
	}
}
