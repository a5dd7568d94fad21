package testkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
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

// migrateWithin bounds how long a node may take to answer another one that sends it keys, in milliseconds.
const migrateWithin = 60_000

// MoveSlot moves the slot of a key to another node, key by key, as an operator's reshard does. It calls halfway, if not nil, when half of the
// keys have moved, and the cluster answers ASK and TRYAGAIN.
func (c *RedisCluster) MoveSlot(key string, from, to *RedisServer, halfway func()) {
	c.Nodes[0].t.Helper()
	ctx := context.Background()
	src, dst := connect(from.Addr()), connect(to.Addr())
	defer func() { _, _ = src.Close(), dst.Close() }()
	slot, srcID, dstID := c.slot(key), src.ClusterMyID(ctx).Val(), dst.ClusterMyID(ctx).Val()
	c.must(dst.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", srcID).Err())
	c.must(src.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", dstID).Err())
	if n := src.ClusterCountKeysInSlot(ctx, int(slot)).Val(); n > 1 {
		c.migrate(ctx, src, to, int(slot), int(n)/2)
	}
	if halfway != nil {
		halfway()
	}
	for c.migrate(ctx, src, to, int(slot), 100) > 0 {
	}
	c.must(dst.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", dstID).Err())
	c.must(src.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", dstID).Err())
}

// migrate moves a number of keys of a slot and returns how many it has moved.
func (c *RedisCluster) migrate(ctx context.Context, src *redis.Client, to *RedisServer, slot, n int) int {
	keys, err := src.ClusterGetKeysInSlot(ctx, slot, n).Result()
	c.must(err)
	if len(keys) == 0 {
		return 0
	}
	args := []any{"MIGRATE", "127.0.0.1", to.lp.port, "", 0, migrateWithin, "KEYS"}
	for _, k := range slices.Sorted(slices.Values(keys)) {
		args = append(args, k)
	}
	c.must(src.Do(ctx, args...).Err())
	return len(keys)
}
