package e2e

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

var userCommand = regexp.MustCompile(`(?m)^    redis-cli (ACL SETUSER spillway-([a-z]+) .*)$`)

// denial matches how Redis 6.2, 7 and 8, and Valkey, deny a command, also inside a script.
var denial = regexp.MustCompile(`NOPERM|The user executing the script can't|ACL failure in script`)

// The three users of docs/security.md have enough rights: a file goes from enqueue to done and people look at it, each program with its own user, and Redis denies nothing. Redis denies
// each user what it does not need.
func TestEachProgramHasTheLeastRightsInRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    amount: {field: amount, currency: currency}\n    leak: {limits: [100/s]}\n    replay: manual\n    lanes: {key: payload.amount}\n    priority: {classes: [urgent, normal], default: normal}\n    outcomes: {readers: [ledger]}\n    approval: {batch_over: \"EUR 1000\"}\n")
	doc, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	configs := map[string]string{}
	file, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range userCommand.FindAllStringSubmatch(string(doc), -1) {
		var args []any
		for word := range strings.FieldsSeq(m[1]) {
			args = append(args, strings.Trim(word, "'"))
		}
		if err := w.redis.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(m[2], err)
		}
		configs[m[2]] = w.file(m[2]+".yaml", strings.Replace(string(file), "redis: redis://", "redis: redis://spillway-"+m[2]+":PASSWORD@", 1))
	}
	if users := slices.Sorted(maps.Keys(configs)); !slices.Equal(users, []string{"dispatcher", "producer", "viewer"}) {
		t.Fatalf("docs/security.md has the users %v", users)
	}
	as := func(user, command string, args ...string) {
		t.Helper()
		w.config = configs[user]
		w.ok(command, args...)
	}
	w.config = configs["dispatcher"]
	w.provider.Set(provider.Config{Decline: 0.5})
	run := w.dispatcher()
	jobs := w.jobs("a.ndjson", 200)
	as("producer", "enqueue", "-g", "stripe", "-f", jobs, "--batch", "b1", "-q")
	as("producer", "enqueue", "-g", "stripe", "-f", jobs, "--batch", "b1", "-q") // all are duplicates
	w.config = configs["viewer"]
	w.shown(t, time.Minute, "all to be over", func() bool { s := w.status(); return s.Done+s.Parked["refused"] == 200 })
	w.provider.Set(provider.Config{})
	for _, args := range [][]string{
		{"status"}, {"batch", "b1"}, {"batch", "list"}, {"batch", "b1", "--export"}, {"job", "inv-00001"}, {"find", "inv-"}, {"export"}, {"dlq", "list"}, {"dlq", "stats"}, {"dlq", "export"}, {"dlq", "history"},
		{"answers"}, {"calls"}, {"processes"}, {"gateway", "list"}, {"limit", "show"}, {"audit"}, {"outcomes", "-g", "stripe"}, {"lane", "list", "-g", "stripe"},
	} {
		as("viewer", "dispatcher", args...)
	}
	for _, args := range [][]string{
		{"pause", "-g", "stripe", "--why", "x"}, {"resume", "-g", "stripe"}, {"limit", "set", "-g", "stripe", "50/s"}, {"limit", "reset", "-g", "stripe"}, {"limit", "forgive", "-g", "stripe", "--why", "x"},
		{"batch", "pause", "b1", "--why", "x"}, {"batch", "resume", "b1", "--why", "x"}, {"dlq", "replay", "--yes", "--reason", "refused"}, {"outcomes", "-g", "stripe", "--reader", "ledger", "--ack"},
	} {
		as("dispatcher", "dispatcher", args...)
	}
	w.emptied(t, time.Minute, 200)
	large := w.file("large.ndjson", `{"id":"large","payload":{"amount":100001,"currency":"EUR"}}`+"\n")
	as("producer", "enqueue", "-g", "stripe", "-f", large, "--batch", "b2", "-q")
	w.config = configs["viewer"]
	if s := w.status(); s.Parked["awaiting_approval"] != 1 {
		t.Errorf("a batch above its sum: %+v", s)
	}
	timed := w.file("timed.ndjson", `{"id":"timed","payload":{"amount":1,"currency":"EUR"},"priority":"urgent","at":"2999-01-01T00:00:00Z"}`+"\n")
	as("producer", "enqueue", "-g", "stripe", "-f", timed, "--batch", "b3", "--canary", "1", "-q")
	w.config = configs["viewer"]
	if s := w.status(); s.Scheduled != 1 {
		t.Errorf("a job of a later time: %+v", s)
	}
	testkit.Server(t, "--replicaof", strings.Replace(w.redis.Addr(), ":", " ", 1))
	testkit.Eventually(t, time.Minute, "the replica to be in step", func() bool {
		return strings.Contains(w.redis.Client().Info(t.Context(), "replication").Val(), "state=online")
	})
	w.config = w.file("replicas.yaml", "wait_replicas: 1\n"+read(t, configs["producer"]))
	w.ok("enqueue", "-g", "stripe", "-f", w.file("replicated.ndjson", `{"id":"replicated","payload":{"amount":1,"currency":"EUR"}}`+"\n"), "-q")
	run.stop()
	denied, err := w.redis.Client().Do(t.Context(), "ACL", "LOG").Slice()
	if err != nil || len(denied) > 0 {
		t.Errorf("Redis has denied %v (%v)", denied, err)
	}
	record := "spillway:{stripe}:job:inv-00001"
	write := "return redis.call('HSET', KEYS[1], 'x', '1')"
	for user, all := range map[string][][]any{
		"dispatcher": {{"FLUSHALL"}, {"KEYS", "*"}, {"CONFIG", "SET", "maxmemory", "1"}, {"SET", "other", "1"}, {"ACL", "LIST"}, {"SHUTDOWN", "NOSAVE"}, {"SCRIPT", "FLUSH"}, {"CLIENT", "KILL", "ID", "1"}},
		"producer": {{"FLUSHDB"}, {"RPUSH", "spillway:{stripe}:trail", "x"}, {"DEL", "spillway:{stripe}:trail"}, {"HSET", "spillway:{stripe}:limits", "x", "1"}, {"HSET", "spillway:{stripe}:hold", "x", "1"},
			{"DEL", "spillway:{stripe}:pace"}, {"HGETALL", "spillway:{adyen}:job:x"}, {"HSET", "spillway:{adyen}:job:x", "p", "x"}, {"LPUSH", "asynq:{adyen}:pending", "x"},
			{"EVAL", "return redis.call('RPUSH', KEYS[1], 'x')", "1", "spillway:{stripe}:trail"}, {"EVAL", "return redis.call('RPUSH', 'spillway:{stripe}:trail', 'x')", "0"}},
		"viewer": {{"HSET", record, "x", "1"}, {"DEL", record}, {"EVAL", write, "1", record}, {"PUBLISH", "spillway:wake", "x"}, {"HGETALL", "other"}, {"CONFIG", "SET", "maxmemory", "1"}, {"EXPIRE", record, "1"}},
	} {
		c := redis.NewClient(&redis.Options{Addr: w.redis.Addr(), Username: "spillway-" + user, Password: "PASSWORD"})
		for _, args := range all {
			if err := c.Do(t.Context(), args...).Err(); err == nil || !denial.MatchString(err.Error()) {
				t.Errorf("%v is not denied to the %s: %v", args, user, err)
			}
		}
		_ = c.Close()
	}
}
