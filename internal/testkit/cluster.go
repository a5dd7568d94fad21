package testkit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// RedisCluster is a Redis Cluster of three primaries without replicas.
type RedisCluster struct {
	// Nodes are its servers. While one is down, the whole cluster answers CLUSTERDOWN.
	Nodes []*RedisServer
}

const slots = 16384

// Cluster starts a Redis Cluster of three primaries for this test alone and waits until it serves.
func Cluster(t testing.TB) *RedisCluster {
	t.Helper()
	c := &RedisCluster{}
	for range 3 {
		c.Nodes = append(c.Nodes, Server(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000"))
	}
	ctx := context.Background()
	for i, n := range c.Nodes {
		if err := c.join(ctx, i); err != nil {
			t.Fatalf("building a cluster at %s: %v", n.Addr(), err)
		}
	}
	Eventually(t, startWithin, "the cluster to agree", func() bool { return c.agrees(ctx) })
	return c
}

// join gives node i its slots and an epoch of its own, and introduces it to the first node.
func (c *RedisCluster) join(ctx context.Context, i int) error {
	node := connect(c.Nodes[i].Addr())
	defer func() { _ = node.Close() }()
	first, last := i*slots/len(c.Nodes), (i+1)*slots/len(c.Nodes)-1
	pipe := node.Pipeline()
	pipe.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	pipe.ClusterAddSlotsRange(ctx, first, last)
	if i > 0 {
		pipe.ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(c.Nodes[0].lp.port))
	}
	_, err := pipe.Exec(ctx)
	return err
}

func (c *RedisCluster) agrees(ctx context.Context) bool {
	for _, n := range c.Nodes {
		node := connect(n.Addr())
		info, err := node.ClusterInfo(ctx).Result()
		_ = node.Close()
		if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") {
			return false
		}
	}
	return true
}

// URL returns redis-cluster://h:p,h:p,h:p.
func (c *RedisCluster) URL() string {
	return "redis-cluster://" + strings.Join(addrs(c.Nodes), ",")
}

// Owner returns the node that holds key's slot.
func (c *RedisCluster) Owner(key string) *RedisServer {
	node := connect(c.Nodes[0].Addr())
	defer func() { _ = node.Close() }()
	slot, err := node.ClusterKeySlot(context.Background(), key).Result()
	if err != nil {
		c.Nodes[0].t.Fatal(err)
	}
	for i, n := range c.Nodes {
		if int(slot) < (i+1)*slots/len(c.Nodes) {
			return n
		}
	}
	return nil
}

func addrs(servers []*RedisServer) []string {
	var out []string
	for _, s := range servers {
		out = append(out, s.Addr())
	}
	return out
}

// RedisSentinel is a primary and a replica under three sentinels.
type RedisSentinel struct {
	// Servers are the two data servers; which one is the primary changes with a fail-over.
	Servers []*RedisServer
	// Sentinels watch them.
	Sentinels []*RedisServer
	t         testing.TB
}

// SentinelMaster is the name under which Sentinel's primary is known.
const SentinelMaster = "spillway"

// Sentinel starts a primary, a replica and three sentinels for this test alone and waits until all know each other.
func Sentinel(t testing.TB) *RedisSentinel {
	t.Helper()
	primary := Server(t, "--repl-diskless-sync-delay", "0")
	port := strconv.Itoa(primary.lp.port)
	replica := Server(t, "--replicaof", "127.0.0.1 "+port, "--repl-diskless-sync-delay", "0")
	s := &RedisSentinel{Servers: []*RedisServer{primary, replica}, t: t}
	for range 3 {
		s.Sentinels = append(s.Sentinels, serve(t, sentinelParams(t, port)))
	}
	Eventually(t, startWithin, "the sentinels to know each other and the replica", s.settled)
	return s
}

func sentinelParams(t testing.TB, port string) launchParams {
	dir := t.TempDir()
	conf := dir + "/sentinel.conf"
	text := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]s 2\nsentinel down-after-milliseconds %[1]s 500\n"+
		"sentinel failover-timeout %[1]s 3000\n", SentinelMaster, port)
	write(t, conf, text)
	return launchParams{dir: dir, conf: conf, args: []string{"--sentinel"}}
}

func (s *RedisSentinel) settled() bool {
	for _, n := range s.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
		m, err := c.Master(context.Background(), SentinelMaster).Result()
		_ = c.Close()
		if err != nil || m["num-slaves"] != "1" || m["num-other-sentinels"] != "2" || m["flags"] != "master" {
			return false
		}
	}
	return linked(s.Servers[0]) || linked(s.Servers[1])
}

func linked(server *RedisServer) bool {
	c := connect(server.Addr())
	defer func() { _ = c.Close() }()
	info, err := c.Info(context.Background(), "replication").Result()
	return err == nil && strings.Contains(info, "master_link_status:up")
}

// URL returns redis-sentinel://h:p,h:p,h:p/0?master=NAME.
func (s *RedisSentinel) URL() string {
	return "redis-sentinel://" + strings.Join(addrs(s.Sentinels), ",") + "/0?master=" + SentinelMaster
}

// Primary returns the server that the sentinels take for the primary.
func (s *RedisSentinel) Primary() *RedisServer {
	s.t.Helper()
	addr := s.primaryAddr()
	for _, server := range s.Servers {
		if server.Addr() == addr {
			return server
		}
	}
	s.t.Fatalf("the sentinels name %q, which is none of %v", addr, addrs(s.Servers))
	return nil
}

func (s *RedisSentinel) primaryAddr() string {
	for _, n := range s.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
		a, err := c.GetMasterAddrByName(context.Background(), SentinelMaster).Result()
		_ = c.Close()
		if err == nil && len(a) == 2 {
			return a[0] + ":" + a[1]
		}
	}
	return ""
}

// FailOver makes the replica the primary and waits until the sentinels say so and it takes writes. The old
// primary stays up and becomes its replica.
func (s *RedisSentinel) FailOver() {
	s.t.Helper()
	old := s.Primary()
	c := redis.NewSentinelClient(&redis.Options{Addr: s.Sentinels[0].Addr(), MaxRetries: -1})
	defer func() { _ = c.Close() }()
	Eventually(s.t, startWithin, "a sentinel to begin the fail-over", func() bool {
		return c.Failover(context.Background(), SentinelMaster).Err() == nil
	})
	s.AwaitPromotion(old)
}

// AwaitPromotion waits until another server than old is the primary and takes writes: after old was killed, say.
func (s *RedisSentinel) AwaitPromotion(old *RedisServer) {
	s.t.Helper()
	Eventually(s.t, 2*startWithin, "another primary", func() bool {
		addr := s.primaryAddr()
		return addr != "" && addr != old.Addr() && isPrimary(addr)
	})
}

func isPrimary(addr string) bool {
	c := connect(addr)
	defer func() { _ = c.Close() }()
	info, err := c.Info(context.Background(), "replication").Result()
	return err == nil && strings.Contains(info, "role:master")
}
