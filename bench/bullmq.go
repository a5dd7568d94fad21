package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// findNode leaves BullMQ and groupmq out, and says why, where they can't be run: the rest is worth measuring without them.
func (b *bulk) findNode(ctx context.Context) {
	var err error
	if b.node, err = nodePeers(ctx, b.dir); err != nil {
		b.node = nil
		fmt.Fprintln(os.Stderr, "bench: the rows of BullMQ and groupmq are left out:", err)
	}
}

// bullmqOnce adds a peer's jobs to a queue of BullMQ, and has its Worker send them.
func (b *bulk) bullmqOnce(ctx context.Context, p *provider, r results) error {
	if b.node == nil {
		return nil
	}
	for _, m := range []struct {
		name   string
		atOnce int
	}{{bullName, 1}, {bullTwoName, 2}} {
		before, err := b.fresh(ctx)
		if err != nil {
			return err
		}
		rate, err := b.addBulk(ctx, m.atOnce)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		r.note(m.name, rate)
		after, err := b.memory(ctx)
		if err != nil {
			return err
		}
		if m.atOnce == 1 {
			r.note(bullMemory, float64(after-before)/float64(b.peers))
		}
	}
	rate, err := b.sent(b.node.script(ctx, "send.mjs", b.server.addr, "bench", p.url), p)
	if err != nil {
		return fmt.Errorf("%s: %w", bullSendName, err)
	}
	r.note(bullSendName, rate)
	return nil
}

// addBulk returns jobs a second, from the first call to the last answer: node's own start is not in it.
func (b *bulk) addBulk(ctx context.Context, atOnce int) (float64, error) {
	return rateOf(b.node.script(ctx, "add.mjs", b.server.addr, "bench", strconv.Itoa(b.peers), strconv.Itoa(atOnce)))
}

// rateOf runs a program that says a rate.
func rateOf(cmd *exec.Cmd) (float64, error) {
	out, err := cmd.Output()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}
