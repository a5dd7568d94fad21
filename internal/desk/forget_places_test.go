package desk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/testkit"
)

// everything returns all keys and values of some Redis servers as text.
func everything(t *testing.T, nodes ...redis.UniversalClient) string {
	t.Helper()
	var all strings.Builder
	for _, c := range nodes {
		for keys := c.Scan(t.Context(), 0, "*", 1000).Iterator(); keys.Next(t.Context()); {
			key := keys.Val()
			var v any
			var err error
			switch kind := c.Type(t.Context(), key).Val(); kind {
			case "hash":
				v, err = c.HGetAll(t.Context(), key).Result()
			case "string":
				v, err = c.Get(t.Context(), key).Result()
			case "list":
				v, err = c.LRange(t.Context(), key, 0, -1).Result()
			case "set":
				v, err = c.SMembers(t.Context(), key).Result()
			case "zset":
				v, err = c.ZRange(t.Context(), key, 0, -1).Result()
			case "stream":
				v, err = c.XRange(t.Context(), key, "-", "+").Result()
			case "none": // it has ended
			default:
				t.Fatalf("%s is of the type %s", key, kind)
			}
			if err != nil {
				t.Fatal(key, err)
			}
			fmt.Fprintln(&all, key, v)
		}
	}
	return all.String()
}

// Forgetting works with sealed payloads, in a cluster, and with the embedded Redis.
func TestForgettingAtEachKindOfRedis(t *testing.T) {
	t.Parallel()
	const sealed = "encryption: {keys: {k1: \"${KEY}\"}, active: k1, require: true}\n"
	for name, at := range map[string]func(t *testing.T) (*clerk, []redis.UniversalClient){
		"sealed": func(t *testing.T) (*clerk, []redis.UniversalClient) {
			c := newClerkAt(t, testkit.Server(t).URL(), sealed)
			return c, []redis.UniversalClient{c.redis}
		},
		"cluster": func(t *testing.T) (*clerk, []redis.UniversalClient) {
			cluster := testkit.Cluster(t)
			c := newClerkAt(t, cluster.URL(), sealed)
			var nodes []redis.UniversalClient
			for _, n := range cluster.Nodes {
				nodes = append(nodes, n.Client())
			}
			return c, nodes
		},
		"embedded": func(t *testing.T) (*clerk, []redis.UniversalClient) {
			c := newClerkAt(t, "embedded", "")
			return c, []redis.UniversalClient{c.redis}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, nodes := at(t)
			c.put(4900, "a", "b", "parked", "gone")
			for id, status := range map[string]int{"a": 200, "b": 200, "parked": 402, "gone": 402} {
				c.call(id, status)
			}
			g := c.d.Gateways[0]
			_, err := g.Store.Discard(t.Context(), []job.Return{{ID: "gone", Generation: 1, Reason: job.Refused}}, time.Hour)
			c.must(err)
			digests := map[string]string{}
			for _, id := range []string{"a", "gone", "parked"} {
				digests[id] = c.field(id, "d")
			}
			before := everything(t, nodes...)
			if strings.Contains(before, "secret-parked\"") == (name != "embedded") || !strings.Contains(before, "ref-secret-a") || len(digests["a"]) < 16 || !strings.Contains(before, digests["a"]) {
				t.Fatalf("what is there can't be searched: %s", before)
			}
			did, err := c.forget(Forgetting{Batch: "november"})
			if err != nil || did[0].Jobs != 3 || did[0].NotOver != 1 {
				t.Errorf("%+v %v", did, err)
			}
			after := everything(t, nodes...)
			for _, lost := range []string{"secret-a", "secret-b", "secret-gone", digests["a"], digests["gone"]} {
				if strings.Contains(after, lost) {
					t.Errorf("%s is still there", lost)
				}
			}
			if c.field("parked", "d") != digests["parked"] {
				t.Error("what is parked has lost its digest")
			}
			if o := c.outcomes(); len(o) < 4 || o[0].Reference != "" {
				t.Errorf("%+v", o)
			}
			if got := fmt.Sprint(c.put(4900, "a"), c.put(5000, "a")); got != "[duplicate] [conflict]" {
				t.Error(got)
			}
			found, err := c.d.FindOne(t.Context(), "parked")
			c.must(err)
			if v, err := found.Job(t.Context()); err != nil || v.ErasedAt != nil || v.State != job.Parked {
				t.Errorf("%+v %v", v, err)
			}
			if v, err := g.Store.Verify(t.Context(), deadletter.Head{}); err != nil || !v.OK {
				t.Errorf("%+v %v", v, err)
			}
		})
	}
}

// field returns a field of a record, by its name in Redis.
func (c *clerk) field(id, name string) string {
	c.t.Helper()
	v, err := c.redis.HGet(c.t.Context(), "spillway:{bank}:job:"+id, name).Result()
	c.must(err)
	return v
}

// over makes a job look as if it had been over for some time.
func (c *clerk) over(id string, ago time.Duration) {
	c.t.Helper()
	c.must(c.redis.HSet(c.t.Context(), "spillway:{bank}:job:"+id, "fin", time.Now().Add(-ago).UnixMicro()).Err())
}

// erase erases jobs that have been over for an hour. It is killed after so many steps; 0 means never.
func (c *clerk) erase(steps int) (int64, error) {
	c.t.Helper()
	done, n := 0, map[string]int64(nil)
	n, err := ledger.EraseEnded(c.t.Context(), []ledger.Ended{{Books: c.d.Gateways[0].Books, After: time.Hour}}, func(context.Context, time.Duration) error {
		if done++; done == steps {
			return errKilled
		}
		return nil
	})
	return n["bank"], err
}

var errKilled = errors.New("killed")

// Jobs that have been over for long are erased, at whatever step the process is killed. Other jobs stay.
func TestWhatHasBeenOverForLongIsErased(t *testing.T) {
	t.Parallel()
	for killed := range 3 { // before the outcomes are rewritten, and during that
		t.Run(fmt.Sprint("killed after ", killed), func(t *testing.T) {
			t.Parallel()
			c := newClerk(t)
			ids := make([]string, 150)
			for i := range ids {
				ids[i] = fmt.Sprintf("j%03d", i)
			}
			c.put(4900, append([]string{"new", "parked", "waits", "gone"}, ids...)...)
			for _, id := range append([]string{"new"}, ids...) {
				c.call(id, 200)
			}
			c.call("parked", 402)
			c.call("gone", 402)
			g := c.d.Gateways[0]
			_, err := g.Store.Discard(t.Context(), []job.Return{{ID: "gone", Generation: 1, Reason: job.Refused}}, time.Hour)
			c.must(err)
			for _, id := range append([]string{"gone"}, ids...) {
				c.over(id, 2*time.Hour)
			}
			before, err := g.Audit(t.Context(), AuditOptions{Most: 9})
			c.must(err)

			first, err := c.erase(killed)
			if killed > 0 && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			second, err := c.erase(0)
			if err != nil || first+second != int64(len(ids)+1) {
				t.Errorf("%d and %d jobs, %v", first, second, err)
			}
			disk := string(c.onDisk())
			if strings.Contains(disk, "secret-j") || strings.Contains(disk, "secret-gone") {
				t.Error("what has been over for long is still there")
			}
			for _, stays := range []string{"ref-secret-new", "secret-waits", "secret-parked"} {
				if !strings.Contains(disk, stays) {
					t.Errorf("%s is gone", stays)
				}
			}
			if again, err := c.erase(0); err != nil || again != 0 {
				t.Errorf("again: %d, %v", again, err)
			}
			after, err := g.Audit(t.Context(), AuditOptions{Most: 9})
			after.Seconds, before.Seconds = 0, 0
			if err != nil || !after.OK || fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the books were %+v, and are %+v, %v", before, after, err)
			}
		})
	}
}

// A feed is not rewritten for jobs whose outcomes it no longer has.
func TestAFeedWithoutTheirOutcomesIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := newClerk(t)
	c.put(4900, "old", "new")
	c.call("old", 200)
	c.must(c.redis.XTrimMaxLen(t.Context(), "spillway:{bank}:outcomes", 0).Err())
	c.call("new", 200)
	c.over("old", 72*time.Hour)
	if n, err := c.erase(1); n != 1 || !errors.Is(err, errKilled) {
		t.Fatal(n, err)
	}
	if marked := c.redis.HExists(t.Context(), "spillway:{bank}:feed", "retelling").Val(); marked {
		t.Error("it is to be written anew")
	}
	c.over("new", 2*time.Hour)
	if n, err := c.erase(1); n != 1 || !errors.Is(err, errKilled) {
		t.Fatal(n, err)
	}
	if marked := c.redis.HExists(t.Context(), "spillway:{bank}:feed", "retelling").Val(); !marked {
		t.Error("it is not to be written anew, though it has the reference")
	}
}
