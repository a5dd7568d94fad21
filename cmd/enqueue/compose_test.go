package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spillway/internal/cli"
)

// The enqueue command at the top of docker-compose.yml works from the root of the repository, with the configuration of compose. Each line of the
// file is a job, except the few that are invalid on purpose.
func TestComposeTakesInWhatItSaysToType(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	typed := regexp.MustCompile(`(?m)^# +docker compose run .* enqueue (.*) < (\S+)$`).FindSubmatch(text)
	if typed == nil {
		t.Fatal("docker-compose.yml does not say how jobs go in")
	}
	jobs, err := os.ReadFile(filepath.Join(root, string(typed[2])))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DISPATCHER_TOKEN", "") // it is for dispatchers alone
	t.Setenv("REDIS_URL", "redis://127.0.0.1:6379/0")
	args := append(strings.Fields(string(typed[1])), "--dry-run", "-o", "json", "-c", filepath.Join(root, "deploy/compose/dispatcher.yaml"))
	var out, errs bytes.Buffer
	code := cli.Main(name, newCommand, args, cli.Streams{In: bytes.NewReader(jobs), Out: &out, Err: &errs})
	if code != 3 || !strings.Contains(out.String(), `"read":300,`) || !strings.Contains(out.String(), `"invalid":5`) {
		t.Errorf("enqueue %s: exit code %d\n%s%s", typed[1], code, out.String(), errs.String())
	}
}
