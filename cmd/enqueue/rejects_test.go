package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Rejects are payments. They go into a file that nobody else may read, and into no other.
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
