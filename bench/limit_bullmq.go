package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// bullmqContenders are BullMQ's limiter as its guide has it, and with the smallest parts that it can count in.
func bullmqContenders(ctx context.Context, s *server) ([]contender, func(), error) {
	n, err := nodePeers(ctx, s.dir)
	if err != nil {
		return nil, nil, err
	}
	all := []contender{
		{name: fmt.Sprintf("BullMQ, its limiter: max %d, duration 1000", limitN), kind: fmt.Sprint(limitN, " 1000")},
		{name: fmt.Sprintf("BullMQ, tuned by hand: max 1, duration %d", 1000/limitN), kind: fmt.Sprint("1 ", 1000/limitN)},
	}
	for i := range all {
		all[i].fill, all[i].worker, all[i].left = n.fill("limit.mjs"), n.bullmqWorker, bullmqLeft
	}
	return all, nil, nil
}

// fill queues the jobs with a program of bench/node.
func (n *nodePeer) fill(program string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		cmd := n.script(ctx, program, "add", t.server.addr, limitQueue)
		cmd.Stdin, cmd.Stdout = strings.NewReader(lines(t.jobs)), os.Stderr
		return cmd.Run()
	}
}

func (n *nodePeer) bullmqWorker(ctx context.Context, t *trial, _ int) (*exec.Cmd, error) {
	args := append([]string{"work", t.server.addr, limitQueue, t.url, fmt.Sprint(limitAtOnce)}, strings.Fields(t.kind)...)
	return n.script(ctx, "limit.mjs", args...), nil
}

// bullmqLeft counts the jobs that BullMQ has neither done nor given up.
func bullmqLeft(ctx context.Context, t *trial) (left int, err error) {
	for _, list := range []string{"wait", "active", "paused"} {
		n, err := t.c.LLen(ctx, "bull:"+limitQueue+":"+list).Result()
		if err != nil {
			return 0, err
		}
		left += int(n)
	}
	n, err := t.c.ZCard(ctx, "bull:"+limitQueue+":delayed").Result()
	return left + int(n), err
}
