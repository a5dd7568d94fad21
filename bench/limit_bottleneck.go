package main

import (
	"context"
	"fmt"
	"os/exec"
)

// bottleneckContenders are Bottleneck over Redis (its clustering), with the reservoir that its documents have for so many calls a second, and with calls
// that are as far apart as the limit has them on average. Its jobs are in the memory of a process, so nobody outside can say how many are left.
func bottleneckContenders(ctx context.Context, s *server) ([]contender, func(), error) {
	n, err := nodePeers(ctx, s.dir)
	if err != nil {
		return nil, nil, err
	}
	all := []contender{
		{name: fmt.Sprintf("Bottleneck, its reservoir: %d every 1000 ms", limitN),
			kind: fmt.Sprintf(`{"reservoir":%d,"reservoirRefreshAmount":%[1]d,"reservoirRefreshInterval":1000}`, limitN)},
		{name: fmt.Sprintf("Bottleneck, tuned by hand: minTime %d", 1000/limitN), kind: fmt.Sprintf(`{"minTime":%d}`, 1000/limitN)},
	}
	for i := range all {
		all[i].fill, all[i].worker = n.fill("bottleneck.mjs"), n.bottleneckWorker
	}
	return all, nil, nil
}

func (n *nodePeer) bottleneckWorker(ctx context.Context, t *trial, _ int) (*exec.Cmd, error) {
	part := (t.jobs + t.workers - 1) / t.workers
	return n.script(ctx, "bottleneck.mjs", "work", t.server.addr, limitQueue, t.url, fmt.Sprint(part), t.kind), nil
}
