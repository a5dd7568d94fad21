package testkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// RedisCluster is a Redis Cluster of three primaries.
type RedisCluster struct {
	// Nodes are the servers that began as primaries. Without replicas, the whole cluster answers CLUSTERDOWN while one is down.
	Nodes []*RedisServer
	// Replicas has one replica for each of Nodes, in the same order. It is empty for Cluster. The replica of a dead node takes its place.
	Replicas []*RedisServer
}

const slots = 16384

// Cluster starts a Redis Cluster of three primaries without replicas for this test alone and waits until it serves.
func Cluster(t testing.TB) *RedisCluster {
	t.Helper()
	c := &RedisCluster{Nodes: clusterNodes(t, nil)}
	ctx := context.Background()
	for i := range c.Nodes {
		c.must(c.join(ctx, i))
	}
	Eventually(t, startWithin, "the cluster to agree", func() bool { return c.agrees(ctx) })
	return c
}

// ClusterWithReplicas starts a Redis Cluster of three primaries with a replica each, for this test alone, and waits until it
// serves and every replica has what its primary has. Args are added to each server's command line.
func ClusterWithReplicas(t testing.TB, args ...string) *RedisCluster {
	t.Helper()
	c := &RedisCluster{Nodes: clusterNodes(t, args), Replicas: clusterNodes(t, args)}
	ctx := context.Background()
	for i := range c.Nodes {
		c.must(c.join(ctx, i))
	}
	for _, r := range c.Replicas {
		c.must(c.meet(ctx, r))
	}
	Eventually(t, startWithin, "the cluster to agree", func() bool { return c.agrees(ctx) })
	for i, r := range c.Replicas {
		node, primary := connect(r.Addr()), connect(c.Nodes[i].Addr())
		err := node.ClusterReplicate(ctx, primary.ClusterMyID(ctx).Val()).Err()
		c.must(errors.Join(err, node.Close(), primary.Close()))
	}
	for _, r := range c.Replicas {
		Eventually(t, startWithin, "a replica to have what its primary has", func() bool { return linked(r) })
	}
	Eventually(t, startWithin, "the cluster to agree on its replicas", func() bool { return c.agrees(ctx) })
	return c
}

// clusterNodes starts three servers. A node counts as dead after 2 s, because on a busy machine a living one may be silent for more than one second. A
// replica may take its place however long it has had no contact.
func clusterNodes(t testing.TB, args []string) []*RedisServer {
	t.Helper()
	args = append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"}, args...)
	return []*RedisServer{Server(t, args...), Server(t, args...), Server(t, args...)}
}

func (c *RedisCluster) must(err error) {
	t := c.Nodes[0].t
	t.Helper()
	if err != nil {
		t.Fatalf("the cluster at %v: %v", addrs(c.Nodes), err)
	}
}

// join gives node i its slots and an epoch of its own, and introduces it to the first node.
func (c *RedisCluster) join(ctx context.Context, i int) error {
	node := connect(c.Nodes[i].Addr())
	defer func() { _ = node.Close() }()
	first, last := i*slots/len(c.Nodes), (i+1)*slots/len(c.Nodes)-1
	pipe := node.Pipeline()
	pipe.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	pipe.ClusterAddSlotsRange(ctx, first, last)
	if _, err := pipe.Exec(ctx); err != nil || i == 0 {
		return err
	}
	return c.meet(ctx, c.Nodes[i])
}

// meet introduces a server to the first node.
func (c *RedisCluster) meet(ctx context.Context, s *RedisServer) error {
	node := connect(s.Addr())
	defer func() { _ = node.Close() }()
	return node.ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(c.Nodes[0].lp.port)).Err()
}

// all returns the nodes and the replicas.
func (c *RedisCluster) all() []*RedisServer { return slices.Concat(c.Nodes, c.Replicas) }

func (c *RedisCluster) agrees(ctx context.Context) bool {
	known := fmt.Sprintf("cluster_known_nodes:%d\r", len(c.all()))
	for _, n := range c.all() {
		node := connect(n.Addr())
		info, err := node.ClusterInfo(ctx).Result()
		_ = node.Close()
		if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, known) {
			return false
		}
	}
	return true
}

// AwaitPromotion waits until the replica of a dead node has taken its place, and every living server knows it.
func (c *RedisCluster) AwaitPromotion(dead *RedisServer) {
	t := dead.t
	t.Helper()
	at := slices.Index(c.Nodes, dead)
	Eventually(t, 2*startWithin, "the dead node's replica to take its place", func() bool {
		for _, s := range c.all() {
			if s == dead {
				continue
			}
			node := connect(s.Addr())
			info, err := node.ClusterInfo(context.Background()).Result()
			_ = node.Close()
			if err != nil || !strings.Contains(info, "cluster_state:ok") {
				return false
			}
		}
		return isPrimary(c.Replicas[at].Addr())
	})
}

// URL returns redis-cluster://h:p,h:p,… of all servers.
func (c *RedisCluster) URL() string {
	return "redis-cluster://" + strings.Join(addrs(c.all()), ",")
}

// Owner returns the node that held key's slot at the start.
func (c *RedisCluster) Owner(key string) *RedisServer {
	slot := c.slot(key)
	for i, n := range c.Nodes {
		if int(slot) < (i+1)*slots/len(c.Nodes) {
			return n
		}
	}
	return nil
}

func (c *RedisCluster) slot(key string) int64 {
	node := connect(c.Nodes[0].Addr())
	defer func() { _ = node.Close() }()
	slot, err := node.ClusterKeySlot(context.Background(), key).Result()
	c.must(err)
	return slot
}

func addrs(servers []*RedisServer) []string {
	var out []string
	for _, s := range servers {
		out = append(out, s.Addr())
	}
	return out
}
