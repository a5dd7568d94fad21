package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/testkit"
)

// typed is the lines of a page that are to be typed and have this text.
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

// What docs/install.md says to type when a gateway is removed leaves no key of it, and takes none of another.
func TestRemovingAGatewayLeavesNothingOfIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	server := testkit.Server(t)
	r.configure(server.URL())
	r.c = server.Client()
	r.stock()
	r.must(r.c.SAdd(r.ctx, "asynq:queues", r.one, r.two).Err())
	keys := func(gateway string) int {
		return len(r.c.Keys(r.ctx, "*{"+gateway+"}*").Val())
	}
	before := keys(r.two)
	if keys(r.one) < 10 || before < 5 {
		t.Fatalf("%d and %d keys", keys(r.one), before)
	}
	for _, line := range typed(t, "../../docs/install.md", "NAME") {
		cmd := exec.Command("sh", "-c", strings.ReplaceAll(line, "NAME", r.one))
		cmd.Env = append(os.Environ(), "REDIS_URL="+server.URL())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	if queues := r.c.SMembers(r.ctx, "asynq:queues").Val(); keys(r.one) > 0 || keys(r.two) != before || len(queues) != 1 || queues[0] != r.two {
		t.Errorf("left: %d keys of it, %d of %d of the other, the queues %v", keys(r.one), keys(r.two), before, queues)
	}
}

// What the head of docker-compose.yml types inside a container is understood there, with the file that is mounted.
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
	args := strings.Fields(strings.ReplaceAll(string(said[1]), "/etc/spillway/dispatcher.yaml", "../../deploy/compose/dispatcher.yaml"))
	var out, errs strings.Builder
	code := cli.Main(name, newCommand, append(args, "--redis", testkit.Redis(t)), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if code != 0 || !strings.Contains(out.String(), "stripe") {
		t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
}
