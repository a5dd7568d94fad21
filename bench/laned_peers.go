package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// lanePeers are what comes nearest to lanes elsewhere. The jobs of each are what it gets done in half a minute.
var lanePeers = []struct {
	peer          string
	lanes, jobs   int
	enqueue, send string
}{
	{"groupmq", 1, 5_000, "groupmq's add, by 500, one group", "calls of a groupmq Worker, 64 at once, one group"},
	{"groupmq", 1000, dispatched, "groupmq's add, by 500, 1,000 groups", "calls of a groupmq Worker, 64 at once, 1,000 groups"},
	{"Temporal", 1, 1_500, "Temporal's ExecuteActivity, 64 at once, one fairness key", "calls of a Temporal worker, 64 at once, one fairness key"},
	{"Temporal", 1000, 1_500, "Temporal's ExecuteActivity, 64 at once, 1,000 fairness keys", "calls of a Temporal worker, 64 at once, 1,000 fairness keys"},
}

// laneNames are the rows of lanes, each of ours before its peers.
func laneNames() []string {
	var enqueue, send []string
	for _, ours := range lanedRows {
		enqueue, send = append(enqueue, ours.enqueue), append(send, ours.send)
		for _, peer := range lanePeers {
			if peer.lanes == ours.lanes {
				enqueue, send = append(enqueue, peer.enqueue), append(send, peer.send)
			}
		}
	}
	return append(enqueue, send...)
}

// laneRatios compares each row of lanes with those of its peers.
func laneRatios() (all []ratio) {
	for _, ours := range lanedRows {
		for _, peer := range lanePeers {
			if peer.lanes == ours.lanes {
				all = append(all, ratio{ours.enqueue + ", to " + peer.enqueue, ours.enqueue, peer.enqueue}, ratio{ours.send + ", to " + peer.send, ours.send, peer.send})
			}
		}
	}
	return all
}

// lanePeersOnce has those peers add jobs and call them that can be had.
func (b *bulk) lanePeersOnce(ctx context.Context, p *provider, r results) error {
	for _, row := range lanePeers {
		if row.peer == "groupmq" && b.node == nil || row.peer == "Temporal" && b.temporal == "" {
			continue
		}
		l := *b
		l.peers = min(b.jobs, row.jobs)
		if err := l.lanePeerOnce(ctx, row.peer, row.lanes, p, func(add, send float64) { r.note(row.enqueue, add); r.note(row.send, send) }); err != nil {
			return fmt.Errorf("%s, %d lanes: %w", row.peer, row.lanes, err)
		}
	}
	return nil
}

func (b *bulk) lanePeerOnce(ctx context.Context, peer string, lanes int, p *provider, note func(add, send float64)) error {
	ctx, stop := context.WithCancel(ctx) // and the server of Temporal
	defer stop()
	if _, err := b.fresh(ctx); err != nil {
		return err
	}
	var add, work *exec.Cmd
	if peer == "groupmq" {
		add = b.node.script(ctx, "groupmq.mjs", "add", b.server.addr, "bench", strconv.Itoa(b.peers), strconv.Itoa(lanes))
		work = b.node.script(ctx, "groupmq.mjs", "work", b.server.addr, "bench", p.url)
	} else {
		t := temporalPeer{program: b.temporal, partitions: 1, fair: true}
		if err := t.serve(ctx); err != nil {
			return err
		}
		add, work = t.adds(ctx, linesOf(b.peers, lanes)), t.works(ctx, p.url, atOnce)
	}
	in, err := rateOf(add)
	if err != nil {
		return err
	}
	out, err := b.sent(work, p)
	note(in, out)
	return err
}

// laned measures one lane and a thousand beside those of peers, -runs times.
func laned(ctx context.Context, o options) error {
	server, err := startRedis()
	if err != nil {
		return err
	}
	defer server.stop()
	c := redis.NewClient(&redis.Options{Addr: server.addr, PoolSize: 80, MaxRetries: -1})
	defer c.Close()
	p, err := newProvider()
	if err != nil {
		return err
	}
	defer p.srv.Close()
	b, err := newBulk(c, server, p.url, o.jobs)
	if err != nil {
		return err
	}
	b.findNode(ctx)
	if b.temporal, err = buildTemporal(ctx, server.dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench: the rows of Temporal are left out:", err)
	}
	fmt.Printf("%s\n%d runs of %d jobs of %d bytes, of calls %d, of peers at most %d\n\n", machine(ctx, c), o.runs, b.jobs, payloadBytes, min(b.peers, dispatched), dispatched)
	r := results{}
	for range o.runs {
		if err := errors.Join(b.lanedOnce(ctx, p, r), b.lanePeersOnce(ctx, p, r)); err != nil {
			return err
		}
	}
	r.table(os.Stdout)
	return nil
}

// The jobs of a comparison in which one lane has a backlog.
const (
	smallLanes = 20
	smallEach  = 5
)

// backlogged are so many jobs: one lane's, and after them a few of each other lane.
func backlogged(jobs int) string {
	var text strings.Builder
	for i := range jobs {
		fmt.Fprintf(&text, "{\"id\":%q,\"lane\":\"acct_%d\",\"payload\":%s}\n", id(i), 10_000_000+laneOf(i, jobs), payload(i))
	}
	return text.String()
}

// laneOf is 0 for the lane with the backlog, and 1 to smallLanes for the others.
func laneOf(i, jobs int) int {
	if i -= jobs - smallLanes*smallEach; i < 0 {
		return 0
	}
	return 1 + i%smallLanes
}
