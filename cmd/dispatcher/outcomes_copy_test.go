package main

import (
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/job"
)

func TestOutcomesCopyRefusesWhatCanNotBeMeant(t *testing.T) {
	r := newRig(t)
	r.fed("{readers: [ledger]}")
	t.Setenv("EMPTY", "")
	t.Setenv("LEDGER_URL", "postgres://u:canary@127.0.0.1:1/db?connect_timeout=1")
	t.Setenv("PASSWORD", "cana/ry")
	for _, c := range []struct {
		args string
		code job.Code
		says string
	}{
		{"--to postgres://h/db --table t", job.CodeUsage, "no --reader"}, {"--reader ledger --table t", job.CodeUsage, "--to does not say"},
		{"--reader ledger --to postgres://h/db", job.CodeUsage, "no --table"}, {"--reader ledger --to ftp://h/db --table t", job.CodeUsage, "--to is no address"},
		{"--reader ledger --to postgres://h/db --table t --rows 0", job.CodeUsage, "--rows 0"}, {"--reader ledger --to postgres://h/db --table T", job.CodeUsage, "no name of a table"},
		{"--reader ledger --to ${EMPTY} --table t", job.CodeUsage, "--to: ${EMPTY} is empty"}, {"--reader ledger --to ${file:nowhere} --table t", job.CodeUsage, "${file:nowhere} can't be read"},
		{"--reader ledger --to postgres://u:${PASSWORD}@h/db --table t", job.CodeUsage, "can't be read"},
		{"--reader nobody --to postgres://h/db --table t", job.CodeNotFound, "no gateway has a reader"}, {"-g " + r.two + " --reader ledger --to postgres://h/db --table t", job.CodeNotFound, "has no outcome feed"},
		{"-g " + r.one + " --reader nobody --to postgres://h/db --table t", job.CodeNotFound, "it names ledger"},
	} {
		var out, err strings.Builder
		code := cli.Main(name, newCommand, append(strings.Fields("outcomes copy --once "+c.args), "-c", r.file), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &err})
		if code != map[job.Code]int{job.CodeUsage: 2, job.CodeNotFound: 4}[c.code] || !strings.Contains(err.String(), c.says) || strings.Contains(err.String(), "cana") || out.Len() > 0 {
			t.Errorf("%s: %d %s", c.args, code, err.String())
		}
	}
}

func TestAPasswordInAFlagIsWarnedOf(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{"postgres://u:secret@h/db": true, "postgres://u:${PASSWORD}@h/db": false, "postgres://u:${file:/run/p}@h/db": false, "${file:/run/url}": false, "postgres://u@h/db": false} {
		var err strings.Builder
		new(cli.Common).WarnOfPassword(cli.Streams{Err: &err}, "--to", url, "do")
		if (err.Len() > 0) != want || strings.Contains(err.String(), "secret") {
			t.Errorf("%s: %q", url, err.String())
		}
	}
}
