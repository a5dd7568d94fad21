package redisdb

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/testkit"
)

var keepOne = NewScript("return redis.call('HSET', KEYS[1], ARGV[1], 1)").Replicated()

// pair is a primary and its replica.
func pair(t *testing.T) (primary, replica *testkit.RedisServer) {
	t.Helper()
	primary = testkit.Server(t, "--repl-diskless-sync-delay", "0")
	replica = testkit.Server(t, "--replicaof", strings.Replace(primary.Addr(), ":", " ", 1))
	at := primary.Client()
	testkit.Eventually(t, 20*time.Second, "the primary to know that the replica has caught up", func() bool {
		return strings.Contains(at.Info(t.Context(), "replication").Val(), ",state=online,")
	})
	return primary, replica
}

// acknowledged does something until its replicas have it: a busy machine's may take longer than one wait.
func acknowledged(t *testing.T, do func() error) {
	t.Helper()
	testkit.Eventually(t, 60*time.Second, "the replicas to have it", func() bool {
		err := do()
		if err != nil && !Away(err) {
			t.Fatal(err)
		}
		return err == nil
	})
}

func TestReplicatedIsAnsweredWhenTheReplicaHasIt(t *testing.T) {
	t.Parallel()
	primary, replica := pair(t)
	db, plain := open(t, primary.URL(), Options{WaitReplicas: 1, ReadTimeout: 4500 * time.Millisecond}), open(t, primary.URL(), Options{})
	ctx, key := t.Context(), NewKeys("g").Counters()
	acknowledged(t, func() error { return keepOne.Run(ctx, db.Client, []string{key}, "a").Err() })
	if !replica.Client().HExists(ctx, key, "a").Val() {
		t.Error("answered before the replica had it")
	}
	replica.Pause()
	defer replica.Continue()
	for what, err := range map[string]error{
		"a script":                 keepOne.Run(ctx, db.Client, []string{key}, "b").Err(),
		"a script without its sha": NewScript("return redis.call('HSET', KEYS[1], 'new', 1)").Replicated().Run(ctx, db.Client, []string{key}).Err(),
		"a command":                db.Client.HSet(Replicated(ctx), key, "c", 1).Err(),
	} {
		if !errors.Is(err, ErrAway) || !Away(err) || !strings.Contains(err.Error(), "of the 1 replicas that must have each job (wait_replicas), 0 have it after 1.5s") {
			t.Errorf("%s, with a stalled replica: %v", what, err)
		}
	}
	if n := plain.Client.HLen(ctx, key).Val(); n != 4 {
		t.Errorf("%d fields: what is not acknowledged has still run", n)
	}
	if err := errors.Join(keepOne.Run(ctx, plain.Client, []string{key}, "d").Err(), db.Client.HGet(ctx, key, "a").Err()); err != nil {
		t.Errorf("neither asks for replicas: %v", err)
	}
}

// A repetition that finds everything done writes nothing. It must still wait for what it found.
func TestReplicatedCoversWhatWasWrittenBefore(t *testing.T) {
	t.Parallel()
	primary, replica := pair(t)
	ctx, key := t.Context(), NewKeys("g").Counters()
	db := open(t, primary.URL(), Options{WaitReplicas: 1, ReadTimeout: 4500 * time.Millisecond})
	replica.Pause()
	defer replica.Continue()
	if err := primary.Client().HSet(ctx, key, "a", 1).Err(); err != nil {
		t.Fatal(err)
	}
	look := NewScript("return redis.call('HEXISTS', KEYS[1], 'a')").Replicated()
	if err := look.Run(ctx, db.Client, []string{key}).Err(); !errors.Is(err, ErrAway) {
		t.Errorf("what it saw is on no replica: %v", err)
	}
	if n := primary.Client().Exists(ctx, "spillway:{g}:mark").Val(); n != 1 {
		t.Error("no write stands before the wait: newer versions of Redis would not wait for what others wrote")
	}
	replica.Continue()
	testkit.Eventually(t, 10*time.Second, "the replica", func() bool { return look.Run(ctx, db.Client, []string{key}).Err() == nil })
}

// When memory is full, what could be written must not fail because of the mark.
func TestReplicatedWithAFullMemory(t *testing.T) {
	t.Parallel()
	primary, _ := pair(t)
	ctx, key := t.Context(), NewKeys("g").Counters()
	db := open(t, primary.URL(), Options{WaitReplicas: 1})
	if err := errors.Join(db.Client.HSet(ctx, key, "a", 1, "b", 1).Err(), db.Client.ConfigSet(ctx, "maxmemory", "1").Err()); err != nil {
		t.Fatal(err)
	}
	frees := NewScript("return redis.call('HDEL', KEYS[1], 'a')").Replicated()
	acknowledged(t, func() error { return frees.Run(ctx, db.Client, []string{key}).Err() })
	if err := keepOne.Run(ctx, db.Client, []string{key}, "c").Err(); !Away(err) || !strings.HasPrefix(err.Error(), "OOM") {
		t.Errorf("a script that needs memory: %v", err)
	}
}

func TestReplicatedIsNotSentTwice(t *testing.T) {
	t.Parallel()
	c := testkit.Cluster(t)
	for name, server := range map[string]struct {
		url   string
		stall *testkit.RedisServer
	}{"cluster": {c.URL(), c.Owner("{g}n")}, "plain": plain(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, server.url, Options{ReadTimeout: brief, WaitReplicas: 1, Wait: time.Minute})
			ctx := t.Context()
			warm(t, db, 4)
			server.stall.Pause()
			err := db.Client.Incr(Replicated(ctx), "{g}n").Err()
			server.stall.Continue()
			if !Away(err) {
				t.Errorf("the stall was answered by %v", err)
			}
			if n := reached(t, db); n > 1 {
				t.Errorf("one command ran %d times", n)
			}
		})
	}
}

// Behind a fixed address (a cloud's endpoint, a name in DNS) connections lead to the old primary until they are given up.
func TestReplicatedGivesUpConnectionsToAnOldPrimary(t *testing.T) {
	t.Parallel()
	primary, replica := pair(t)
	db := open(t, primary.URL(), Options{WaitReplicas: 1})
	ctx, key := t.Context(), NewKeys("g").Counters()
	acknowledged(t, func() error { return keepOne.Run(ctx, db.Client, []string{key}, "a").Err() })
	replica.Client().ReplicaOf(ctx, "NO", "ONE")
	at := strings.Split(replica.Addr(), ":")
	if err := primary.Client().ReplicaOf(ctx, at[0], at[1]).Err(); err != nil {
		t.Fatal(err)
	}
	err := keepOne.Run(ctx, db.Client, []string{key}, "b").Err()
	if !Away(err) || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("a demoted primary: %v", err)
	}
	if stats := db.Client.PoolStats(); stats.TotalConns > 0 {
		t.Errorf("the connection was kept: %+v", stats)
	}
}

func TestReplicatedFollowsACluster(t *testing.T) {
	t.Parallel()
	c := testkit.ClusterWithReplicas(t)
	ctx, key := t.Context(), NewKeys("g").Counters()
	owner := c.Owner(key)
	other := c.Nodes[0]
	if other == owner {
		other = c.Nodes[1]
	}
	db := open(t, c.URL(), Options{WaitReplicas: 1, ReadTimeout: 4500 * time.Millisecond})
	keep := func(field string) error {
		return keepOne.Run(ctx, db.Client, []string{key, NewKeys("g").Pace()}, field).Err()
	}
	acknowledged(t, func() error { return keep("a") })
	if err := db.Client.Set(ctx, NewKeys("g").Pace(), 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	c.MoveSlot(key, owner, other, func() {
		if err := keep("b"); !Away(err) {
			t.Errorf("half a slot has moved: %v", err)
		}
	})
	acknowledged(t, func() error { return keep("c") }) // once the slot has moved
	other.Kill()
	killed := time.Now()
	if err := keep("d"); !Away(err) {
		t.Errorf("its primary is dead: %v", err)
	}
	testkit.Eventually(t, 30*time.Second, "the promoted replica", func() bool {
		err := db.Client.HSet(ctx, key, "e", 1).Err()
		if err != nil && !Away(err) {
			t.Error(err)
		}
		return err == nil
	})
	t.Logf("writes again %s after the kill", time.Since(killed).Round(time.Millisecond))
	kept := db.Client.HGetAll(ctx, key).Val()
	delete(kept, "b") // it may be there: Valkey moves the mark first, so the write ran and only its wait for replicas was refused
	if !maps.Equal(kept, map[string]string{"a": "1", "c": "1", "e": "1"}) {
		t.Errorf("it holds %v and not a and c, which were acknowledged, and e", kept)
	}
	if err := keep("f"); !errors.Is(err, ErrAway) { // its new primary has no replica yet
		t.Error(err)
	}
}

func TestReplicatedFollowsSentinels(t *testing.T) {
	t.Parallel()
	s := testkit.SentinelOf(t, 2)
	db := open(t, s.URL(), Options{WaitReplicas: 1, ReadTimeout: 4500 * time.Millisecond})
	ctx, key := t.Context(), NewKeys("g").Counters()
	acknowledged(t, func() error { return keepOne.Run(ctx, db.Client, []string{key}, "a").Err() })
	s.Primary().Kill()
	killed := time.Now()
	testkit.Eventually(t, 60*time.Second, "the new primary and its replica", func() bool {
		err := keepOne.Run(ctx, db.Client, []string{key}, "b").Err()
		if err != nil && !Away(err) {
			t.Error(err)
		}
		return err == nil
	})
	t.Logf("acknowledged again %s after the kill", time.Since(killed).Round(time.Millisecond))
	if n := db.Client.HLen(ctx, key).Val(); n != 2 {
		t.Errorf("%d fields of 2: what was acknowledged is not there", n)
	}
}

func TestReplicatedNeedsNoReplicasUnlessAsked(t *testing.T) {
	t.Parallel()
	db := open(t, testkit.Redis(t), Options{})
	key := NewKeys(testkit.Gateway(t)).Counters()
	if err := errors.Join(keepOne.Run(t.Context(), db.Client, []string{key}, "a").Err(), db.Client.Get(Replicated(t.Context()), key+"none").Err()); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
	if _, err := Open(context.Background(), Embedded, Options{WaitReplicas: 1}); !errors.Is(err, ErrURL) {
		t.Errorf("an embedded Redis has no replicas: %v", err)
	}
}
