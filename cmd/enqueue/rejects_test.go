package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rejects are payments. They are written to a new file that only its owner can read. No other name or target of that path is changed.
func TestRejectsGoIntoAFileOfTheirOwn(t *testing.T) {
	b := setup(t, place{})
	at := func(name string) string { return filepath.Join(b.dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b.write("a.ndjson", lines("a", 1)+"bad\n")
	reject := func(name string) result { return b.run("-g", b.g, "-f", "a.ndjson", "-q", "--rejects", at(name)) }

	b.write("wide", "of the last run\n")
	must(os.Chmod(at("wide"), 0o666))
	must(os.Link(at("wide"), at("other name")))
	reader, err := os.Open(at("wide"))
	must(err)
	defer reader.Close()
	if got := reject("wide"); got.code != 3 || b.read("wide") != "bad\n" {
		t.Errorf("%+v, and the rejects are %q", got, b.read("wide"))
	}
	if info, err := os.Stat(at("wide")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of a file that everybody could write is %v (%v)", info.Mode(), err)
	}
	if was := b.read("other name"); was != "of the last run\n" {
		t.Errorf("another name of the file shows %q", was)
	}
	seen := make([]byte, 100)
	if n, _ := reader.Read(seen); string(seen[:n]) != "of the last run\n" {
		t.Errorf("who had the file open reads %q", seen[:n])
	}

	b.write("target", "keep me\n")
	must(os.Symlink(at("target"), at("link")))
	must(os.Symlink(at("nothing"), at("dangling")))
	for _, name := range []string{"link", "dangling"} {
		if got := reject(name); got.code != 2 {
			t.Errorf("a link that leads elsewhere: %+v", got)
		}
	}
	if b.read("target") != "keep me\n" {
		t.Errorf("the target of a link is %q now", b.read("target"))
	}
	if _, err := os.Stat(at("nothing")); err == nil {
		t.Error("a link to nothing has made a file")
	}
	left, err := filepath.Glob(at(".*"))
	must(err)
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if got := reject("no such folder/bad"); got.code != 2 {
		t.Errorf("a folder that is not there: %+v", got)
	}
}

// With dedupe_scope all, an id that another gateway knows is a duplicate, and with another payload an invalid line. The messages name that gateway.
func TestIDsOfOtherGatewaysWithOneScope(t *testing.T) {
	b := setup(t, place{})
	b.write("dispatcher.yaml", "dedupe_scope: all\n"+b.read("dispatcher.yaml"))
	id := b.g + "-invoice-" // ids of other tests share the Redis
	b.write("a.ndjson", fmt.Sprintf("{\"id\":\"%[1]s1\"}\n{\"id\":\"%[1]s2\",\"payload\":{\"x\":1}}\n", id))
	b.write("b.ndjson", fmt.Sprintf("{\"id\":\"%[1]s1\"}\n{\"id\":\"%[1]s2\",\"payload\":{\"x\":2}}\n{\"id\":\"%[1]s3\"}\n", id))
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json"), result{0, counts(2, 2, 0, 0, 0, 0), ""})
	b.want(b.run("-g", b.g2, "-f", "b.ndjson", "-o", "json", "--rejects", "bad"), result{3,
		strings.Replace(counts(3, 1, 0, 1, 1, 0), `"failed":0`, fmt.Sprintf(`"failed":0,"duplicate_at":{%q:1}`, b.g), 1),
		"line 2: this id is known at gateway G with another payload: the first one stands; give this job an id of its own\n" +
			"1 of the duplicates: known at gateway G (dedupe_scope: all), and not enqueued here\n" +
			"enqueue: 1 of 3 lines could not be used\nhint: mend them in bad and enqueue that\n"})
	if got := b.read("bad"); got != fmt.Sprintf("{\"id\":\"%s2\",\"payload\":{\"x\":2}}\n", id) {
		t.Errorf("rejects: %q", got)
	}
	if b.record(b.g2, id+"1").State != "" || b.record(b.g2, id+"3").State != "queued" {
		t.Error("the other gateway has other jobs")
	}
}
