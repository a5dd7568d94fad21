package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// A gateway may have a limited number of parked jobs. Jobs beyond it find no room, and keep their order. The same file enqueues them later.
func TestWhatCanNotBeParkedIsToldAsFull(t *testing.T) {
	b := setup(t, place{burst: 1, limit: "1/h", more: "parked: {most: 100}"})
	b.write("a.ndjson", lines("a", 1000))
	got := b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "-q")
	var r report
	if err := json.Unmarshal([]byte(strings.NewReplacer(":S", ":0", ":J", ":0").Replace(got.out)), &r); err != nil {
		t.Fatal(err)
	}
	if got.code != 3 || r.Enqueued != 1 || r.Parked != 100 || r.Failed != r.Read-101 {
		t.Errorf("exit code %d, %+v; 100 of them may be parked", got.code, r)
	}
	if want := "enqueue: gateway G has no room for all of them, and 100 jobs are parked, the most that parked.most allows: stopped\n" +
		"hint: replay, resolve or discard parked jobs (see: dispatcher dlq stats -g G), let them go in, or raise parked.most; then run the same again (" + again + ")\n"; got.err != want {
		t.Errorf("standard error\n%s\nwant\n%s", got.err, want)
	}
	b.write("dispatcher.yaml", strings.Replace(b.read("dispatcher.yaml"), "most: 100", "most: 2000", 1))
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "-q"), result{0, counts(1000, 0, 899, 101, 0, 0), ""})
	parked := testkit.Client(t).ZRange(t.Context(), redisdb.NewKeys(b.g).Parked("rejected"), 0, -1).Val()
	for i, id := range parked {
		if want := fmt.Sprintf("a-%d", i+1); id != want {
			t.Fatalf("%s is parked where %s belongs", id, want)
		}
	}
	if len(parked) != 999 {
		t.Errorf("%d are parked", len(parked))
	}
}

// The bytes of the parked payloads are limited in the same way.
func TestWhatIsTooLongToBeParkedIsToldAsFull(t *testing.T) {
	b := setup(t, place{burst: 1, limit: "1/h", more: "parked: {bytes: 1KiB}"})
	b.write("a.ndjson", lines("a", 1000))
	got := b.run("-g", b.g, "-f", "a.ndjson", "-q")
	if want := "enqueue: gateway G has no room for all of them, and with one more the payloads of the parked jobs would come to more than 1KiB, which parked.bytes allows: stopped\n" +
		"hint: replay, resolve or discard parked jobs (see: dispatcher dlq stats -g G), let them go in, or raise parked.bytes; then run the same again (" + again + ")\n"; got.code != 3 || got.err != want {
		t.Errorf("exit code %d, standard error\n%s\nwant\n%s", got.code, got.err, want)
	}
	if n, err := testkit.Client(t).HGet(t.Context(), redisdb.NewKeys(b.g).Counters(), "b:parked:rejected").Int(); err != nil || n > 1024 || n < 900 {
		t.Errorf("%d bytes are parked, %v", n, err)
	}
}

// Another program has overwritten the record of one job. That line is invalid, and the other lines are enqueued.
func TestADamagedRecordStopsItsOwnLineOnly(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", lines("a", 1200))
	key := redisdb.NewKeys(b.g).Job("a-700")
	if err := testkit.Client(t).Set(t.Context(), key, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	got := b.run("-g", b.g, "-f", "a.ndjson", "-o", "json")
	if !strings.HasPrefix(got.err, "line 701: ") || !strings.Contains(got.err, strings.ReplaceAll(key, b.g, "G")) {
		t.Errorf("standard error %s", got.err)
	}
	got.err = ""
	b.want(got, result{3, counts(1200, 1199, 0, 0, 1, 0), ""})
}
