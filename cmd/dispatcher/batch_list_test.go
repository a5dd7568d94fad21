package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// untidied returns what a command writes, unchanged. The command must succeed.
func (r *rig) untidied(args ...string) string {
	r.t.Helper()
	var out, err bytes.Buffer
	if code := cli.Main(name, newCommand, append(args, "-c", r.file), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &err}); code != 0 {
		r.t.Fatalf("%v: exit code %d: %s", args, code, err.String())
	}
	return out.String()
}

// listed runs "batch list -o json".
func (r *rig) listed(args ...string) (all []desk.BatchRow) {
	r.t.Helper()
	for line := range strings.Lines(r.untidied(append([]string{"batch", "list", "-o", "json"}, args...)...)) {
		var v desk.BatchRow
		r.must(json.Unmarshal([]byte(line), &v))
		all = append(all, v)
	}
	return all
}

func names(rows []desk.BatchRow) string {
	var all []string
	for _, row := range rows {
		all = append(all, row.Batch)
	}
	return strings.Join(all, " ")
}

func TestBatchListSumsEachBatchOverItsGateways(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.served()
	r.batch()
	rows := r.listed()
	if names(rows) != "b2 b1" {
		t.Fatalf("newest first: %s", names(rows))
	}
	b := rows[1]
	if b.State != desk.BatchActive || strings.Join(b.Gateways, " ") != r.one+" "+r.two || b.Jobs != 4 || b.Done.Jobs != 1 || b.Waiting.Jobs != 2 || b.NeedsPerson.Jobs != 1 || b.Other.Jobs != 0 {
		t.Errorf("b1: %+v", b)
	}
	if b.Amount["EUR"].Int64() != 1000000001049 || b.Done.Amount["EUR"].Int64() != 1050 || b.NeedsPerson.Amount["EUR"].Int64() != 999999999999 || b.NoAmount != 1 {
		t.Errorf("the money of b1: %+v", b)
	}
	if b.ETASeconds == nil || *b.ETASeconds > 60 {
		t.Errorf("two jobs at 100/s: %v, %s", b.ETASeconds, b.ETAWhy)
	}
	if rows := r.listed("-g", r.two); names(rows) != "b1" || rows[0].Jobs != 1 {
		t.Errorf("one gateway alone: %+v", rows)
	}
	got := r.command("batch", "list", "--limit", "1")
	got.out = regexp.MustCompile(`\t[0-9.]+m?s\t`).ReplaceAllString(got.out, "\tETA\t")
	if want := "b2\tactive\t1\t0\t1\t0\t\tEUR 1\tETA\tTIME\tone\t1 queued\t\n"; got.out != want || !strings.Contains(got.err, `there may be more: add --after "`) {
		t.Errorf("a page of one: %+v, want %q", got, want)
	}
	first := r.listed("--limit", "1")
	if rest := r.listed("--after", first[0].Cursor); names(rest) != "b1" {
		t.Errorf("behind the first: %s", names(rest))
	}
	if got := r.command("batch", "list", "--after", "nonsense"); got.code != 2 || !strings.Contains(got.err, "is not the cursor of a batch") {
		t.Errorf("%+v", got)
	}
	if got := r.command("batch", "list", "--limit", "0"); got.code != 2 {
		t.Errorf("%+v", got)
	}
}

func TestBatchListSaysHowABatchStands(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.accept(r.gateway(r.one), job.Enqueued, charge("o", "1", "over"))
	r.succeed(r.one, "")
	r.park(r.one, charge("n", "2", "no"), job.Refused, 402, "no")
	r.accept(r.manual(r.one), job.Enqueued, charge("p", "3", "held"))
	r.accept(r.gateway(r.two), job.Enqueued, charge("q", "3", "held"))
	r.accept(r.manual(r.one), job.Enqueued, charge("c", "4", "gone"))
	for _, act := range [][]string{{"pause", "held", "-g", r.one}, {"cancel", "gone"}} {
		if got := r.command(slices.Concat([]string{"batch"}, act, []string{"--why", "wrong file", "--yes"})...); got.code != 0 {
			t.Fatalf("%v: %+v", act, got)
		}
	}
	want := map[string]desk.BatchState{"over": desk.BatchOver, "no": desk.BatchActive, "held": desk.BatchPaused, "gone": desk.BatchCancelled}
	rows := r.listed()
	for _, row := range rows {
		if row.State != want[row.Batch] {
			t.Errorf("%s is %s, want %s", row.Batch, row.State, want[row.Batch])
		}
		all := row.Done
		all.Add(row.Waiting)
		all.Add(row.NeedsPerson)
		all.Add(row.Other)
		if !all.Equal(row.Totals) {
			t.Errorf("%s: its parts are %+v, and its jobs %+v", row.Batch, all, row.Totals)
		}
	}
	if active := names(r.listed("--active")); active != "held no" {
		t.Errorf("active: %s", active)
	}
	for _, row := range rows {
		if row.Batch == "held" && (row.PauseWhy != "wrong file" || row.PausedBy == "" || row.PausedAt == nil || strings.Join(row.StoppedAt, " ") != r.one) {
			t.Errorf("held: at %v since %v by %q: %q", row.StoppedAt, row.PausedAt, row.PausedBy, row.PauseWhy)
		}
		if row.Batch == "gone" && (row.CancelWhy != "wrong file" || row.CancelBy == "" || row.Cancelled == nil || row.Other.Jobs != 1) {
			t.Errorf("gone: at %v since %v by %q: %q", row.StoppedAt, row.Cancelled, row.CancelBy, row.CancelWhy)
		}
	}
}

// The list reads the books of 100 batches in one round trip, and no jobs. So a thousand jobs take as long as a thousand million.
func TestBatchListHasPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const batches = 500
	_, err := r.c.Pipelined(r.ctx, func(p redis.Pipeliner) error {
		for i := range batches {
			for _, g := range []string{r.one, r.two} {
				k, name := redisdb.NewKeys(g), fmt.Sprintf("b%03d", i)
				p.ZAdd(r.ctx, k.Batches(), redis.Z{Score: float64(1763742851000000 + i), Member: name})
				p.HSet(r.ctx, k.Batch(name), "n:done", 1000000, "m:done:EUR", 5, "M:done:EUR", 70, "n:queued", 20, "live", 20)
			}
		}
		return nil
	})
	r.must(err)
	begun := time.Now()
	rows := r.listed()
	took := time.Since(begun)
	if len(rows) != batches || rows[0].Batch != "b499" || rows[0].Jobs != 2000040 || rows[0].Amount["EUR"].Int64() != 140000000010 {
		t.Fatalf("%d rows, the first is %+v", len(rows), rows[0])
	}
	t.Logf("%d batches at two gateways took %s", batches, took)
	var all []desk.BatchRow
	for after := ""; ; after = all[len(all)-1].Cursor {
		args := []string{"--limit", "120"}
		if after != "" {
			args = append(args, "--after", after)
		}
		page := r.listed(args...)
		if all = append(all, page...); len(page) < 120 {
			break
		}
	}
	if names(all) != names(rows) {
		t.Errorf("page by page there are %d batches", len(all))
	}
}
