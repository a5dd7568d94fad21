package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// bullmqContenders are BullMQ's limiter as its guide has it, and with the smallest parts that it can count in.
func bullmqContenders(n *nodePeer) []contender {
	all := []contender{
		{name: fmt.Sprintf("BullMQ, its limiter: max %d, duration 1000", limitN), kind: fmt.Sprint(limitN, " 1000")},
		{name: fmt.Sprintf("BullMQ, tuned by hand: max 1, duration %d", 1000/limitN), kind: fmt.Sprint("1 ", 1000/limitN)},
	}
	for i := range all {
		all[i].fill, all[i].worker, all[i].dead = n.fillLimited, n.limitWorker, failed
	}
	return all
}

func (n *nodePeer) fillLimited(ctx context.Context, t *trial) error {
	cmd := n.script(ctx, "limit.mjs", "add", t.server.addr, limitQueue)
	cmd.Stdin, cmd.Stdout = strings.NewReader(lines(t.jobs)), os.Stderr
	return cmd.Run()
}

func (n *nodePeer) limitWorker(ctx context.Context, t *trial) (*exec.Cmd, error) {
	args := append([]string{"work", t.server.addr, limitQueue, t.url, fmt.Sprint(limitAtOnce)}, strings.Fields(t.kind)...)
	return n.script(ctx, "limit.mjs", args...), nil
}

// failed counts the jobs that BullMQ has given up.
func failed(ctx context.Context, t *trial) (int, error) {
	n, err := t.c.ZCard(ctx, "bull:"+limitQueue+":failed").Result()
	return int(n), err
}
