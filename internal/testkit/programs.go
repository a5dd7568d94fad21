package testkit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Programs puts both programs into a directory, with or without the race detector. What it builds stays in bin/ of the module, where the next test finds
// it: linking takes longer than most tests.
func Programs(dir string, raced bool) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	kept := filepath.Join(root, "bin", "test", map[bool]string{false: "plain", true: "raced"}[raced])
	if err := os.MkdirAll(kept, 0o777); err != nil {
		return err
	}
	unlock := lock(filepath.Join(kept, "lock"))
	defer unlock()
	build := exec.Command("go", "build", fmt.Sprintf("-race=%v", raced), "-ldflags=-s -w", "-o", kept+"/", "spillway/cmd/...")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	for _, name := range []string{"dispatcher", "enqueue"} {
		if err := linkOrCopy(filepath.Join(kept, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// moduleRoot returns the nearest directory, from the working directory up, that has a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = up
	}
}

// linkOrCopy gives a program a second name, or copies it to another file system. The next build replaces the first name and leaves this one as it is.
func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
