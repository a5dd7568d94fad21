package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// nodeFiles are the programs of the peers that run in Node.js, and the exact versions of what they need.
//
//go:embed node/package.json node/package-lock.json node/*.mjs
var nodeFiles embed.FS

const fetchFor = 3 * time.Minute // what npm may take, where it has to fetch

// nodePeer is what runs the programs of bench/node: BullMQ, Bottleneck and groupmq.
type nodePeer struct {
	node string
	dir  string // of the programs, beside their node_modules
}

// nodePeers puts the programs into a folder of dir, which goes with this run. The packages are fetched once and stay in the user's cache: nothing
// is ever written into the tree.
func nodePeers(ctx context.Context, dir string) (*nodePeer, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, errors.New("no node on the PATH")
	}
	n := &nodePeer{node: node, dir: filepath.Join(dir, "node")}
	if _, err := os.Stat(filepath.Join(n.dir, "node_modules")); err == nil {
		return n, nil // those of another peer in this run
	}
	if err := os.CopyFS(dir, nodeFiles); err != nil {
		return nil, err
	}
	packages, err := n.packages(ctx)
	if err != nil {
		return nil, err
	}
	return n, os.Symlink(packages, filepath.Join(n.dir, "node_modules"))
}

// script is a program of bench/node, ready to be started.
func (n *nodePeer) script(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, n.node, append([]string{filepath.Join(n.dir, name)}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// packages returns the node_modules of exactly these versions: those of an earlier run, or new ones. A folder gets its name when it is whole, so
// that a run which was interrupted leaves none that looks so.
func (n *nodePeer) packages(ctx context.Context) (string, error) {
	lock, err := nodeFiles.ReadFile("node/package-lock.json")
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = n.dir // nobody's home: for this run alone
	}
	cache = filepath.Join(cache, "spillway-bench")
	whole := filepath.Join(cache, fmt.Sprintf("node-%x", sha256.Sum256(lock))[:20])
	if _, err := os.Stat(whole); err == nil {
		return filepath.Join(whole, "node_modules"), nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	part, err := os.MkdirTemp(cache, "part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	if err := n.fetch(ctx, part); err != nil {
		return "", err
	}
	if err := os.Rename(part, whole); err != nil && !errors.Is(err, os.ErrExist) { // another run may have been quicker
		return "", err
	}
	return filepath.Join(whole, "node_modules"), nil
}

// fetch installs what the lock names, and runs nothing of it. It is not `npm ci`, which refuses a lock that doesn't name the optional packages of
// every other kind of machine.
func (n *nodePeer) fetch(ctx context.Context, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("no npm on the PATH")
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(n.dir, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	ctx, stop := context.WithTimeout(ctx, fetchFor)
	defer stop()
	cmd := exec.CommandContext(ctx, npm, "install", "--no-save", "--ignore-scripts", "--engine-strict", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("npm install: %s (%w)", cmp.Or(said, "no word"), err)
	}
	return nil
}
