package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// typed returns the commands of a page that contain this text.
func typed(t *testing.T, page, with string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if command, ok := strings.CutPrefix(line, "    "); ok && strings.Contains(command, with) {
			lines = append(lines, strings.TrimSpace(command))
		}
	}
	if len(lines) == 0 {
		t.Fatalf("%s has no line to type with %s", page, with)
	}
	return lines
}

const installPage = "../../docs/install.md"

// The command in docs/install.md that removes a gateway leaves none of its keys, and removes no key of another gateway.
func TestRemovingAGatewayLeavesNothingOfIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	server := testkit.Server(t)
	r.configure(server.URL())
	r.c = server.Client()
	r.park(r.one, charge("a", "1050", "b1"), job.Refused, 402, "HTTP 402")
	r.reject(r.one, charge("b", "99", "b1"))
	r.park(r.two, job.Job{ID: "e", Payload: []byte(`{"n":1}`)}, job.UnknownOutcome, 0, "timed out")
	r.must(r.c.SAdd(r.ctx, "asynq:queues", r.one, r.two).Err())
	before := r.keysOf(r.two)
	if r.keysOf(r.one) < 10 || before < 5 {
		t.Fatalf("%d and %d keys", r.keysOf(r.one), before)
	}
	text, err := os.ReadFile(r.file)
	r.must(err)
	r.must(os.WriteFile(r.file, bytes.ReplaceAll(text, []byte("  "+r.one+":"), []byte("  other:")), 0o600))
	said, why, ok := strings.Cut(typed(t, installPage, "gateway forget NAME")[0], " --why ")
	if !ok {
		t.Fatalf("it gives no reason: %s", said)
	}
	args := append(strings.Fields(strings.ReplaceAll(said, "NAME", r.one))[1:], "--why", strings.Trim(why, `"`), "--yes", "-c", r.file)
	var out, errs strings.Builder
	if code := cli.Main(name, newCommand, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	queues, err := redisdb.Registered(r.ctx, r.c)
	if r.must(err); r.keysOf(r.one) > 0 || r.keysOf(r.two) != before || len(queues) != 1 || queues[0] != r.two {
		t.Errorf("left: %d keys of it, %d of %d of the other, the register %v", r.keysOf(r.one), r.keysOf(r.two), before, queues)
	}
}

// The commands there that remove Spillway leave no key at all.
func TestRemovingSpillwayLeavesNothingInRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	server := testkit.Server(t)
	r.configure(server.URL())
	r.c = server.Client()
	r.stock()
	r.must(r.c.SAdd(r.ctx, redisdb.AsynqQueues, r.one, r.two).Err())
	r.must(r.c.SAdd(r.ctx, redisdb.Gateways, r.one, r.two).Err())
	r.must(r.c.HSet(r.ctx, redisdb.Forgotten, "x 1", "{}").Err())
	for _, gateway := range []string{r.one, r.two} {
		if r.keysOf(gateway) < 5 {
			t.Fatalf("%d keys of %s", r.keysOf(gateway), gateway)
		}
		for _, line := range typed(t, installPage, `redis-cli -u "$REDIS_URL"`) {
			cmd := exec.Command("sh", "-c", strings.ReplaceAll(line, "NAME", gateway))
			cmd.Env = append(os.Environ(), "REDIS_URL="+server.URL())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
		}
	}
	if left := r.c.Keys(r.ctx, "*").Val(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func (r *rig) keysOf(gateway string) int {
	return len(r.c.Keys(r.ctx, "*{"+gateway+"}*").Val())
}

// The command at the top of docker-compose.yml works inside a container, with the mounted file.
func TestComposeShowsTheStatusAsItSaysToType(t *testing.T) {
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`(?m)^# +docker compose exec dispatcher-1 /dispatcher (.*)$`).FindSubmatch(text)
	if said == nil || !strings.Contains(string(text), "./deploy/compose/dispatcher.yaml:/etc/spillway/dispatcher.yaml:ro") {
		t.Fatal("docker-compose.yml does not say how to see the status")
	}
	t.Setenv("DISPATCHER_TOKEN", "a-token-for-the-test")
	t.Setenv("REDIS_URL", "redis://redis:6379/0")
	args := strings.Fields(strings.ReplaceAll(string(said[1]), "/etc/spillway/dispatcher.yaml", "../../deploy/compose/dispatcher.yaml"))
	var out, errs strings.Builder
	code := cli.Main(name, newCommand, append(args, "--redis", testkit.Redis(t)), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if code != 0 || !strings.Contains(out.String(), "stripe") {
		t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
}
