package main

import (
	"strings"
	"testing"

	"spillway/internal/redisdb"
)

// A command that finds data of a newer format does nothing, whether it reads or acts. Doctor says what is wrong.
func TestDataOfANewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.two).Alive(), "format", "2").Err())
	before := r.c.HGetAll(r.ctx, redisdb.NewKeys(r.two).Counters()).Val()
	says := "dispatcher: Redis's data of gateway two is of format 2, written by a newer version of Spillway; this one knows formats up to " + redisdb.Format + ", so it does nothing with it\n" +
		"hint: use the newer version; to go back to this one, restore a backup from before the upgrade (docs/upgrading.md)\n"
	for _, args := range []string{"status", "audit --repair", "dlq discard --why x --yes", "limit set -g " + r.one + " 5/s", "pause -g " + r.two + " --why x", "run --listen=", "run --after-restore --listen="} {
		if got := r.command(strings.Fields(args)...); got.code != 2 || got.out != "" || !strings.HasSuffix(r.tidy(got.err), says) {
			t.Errorf("%s: exit code %d, %s%s", args, got.code, got.out, got.err)
		}
	}
	after := r.c.HGetAll(r.ctx, redisdb.NewKeys(r.two).Counters()).Val()
	if len(before) == 0 || len(before) != len(after) {
		t.Errorf("the books were %v and are %v", before, after)
	}
	got := r.command("doctor")
	if got.code != 1 || !strings.Contains(r.tidy(got.out), "fail\tformat\ttwo\tRedis's data of gateway two is of format 2") {
		t.Errorf("doctor: exit code %d\n%s%s", got.code, got.out, got.err)
	}
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.two).Alive(), "format", redisdb.Format).Err())
	if got := r.command("status"); got.code != 0 {
		t.Errorf("exit code %d with data of this format: %s", got.code, got.err)
	}
}
