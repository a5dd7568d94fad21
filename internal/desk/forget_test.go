package desk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// clerk works at the desk of a gateway.
type clerk struct {
	t     *testing.T
	srv   *testkit.RedisServer // which writes its file without compression; nil where the Redis is of another kind
	redis redis.UniversalClient
	d     *Desk
	cfg   *config.Config
}

func newClerk(t *testing.T) *clerk {
	t.Helper()
	srv := testkit.Server(t, "--rdbcompression", "no")
	c := newClerkAt(t, srv.URL(), "")
	c.srv = srv
	return c
}

// newClerkAt returns a clerk with this Redis, and with more at the top of the file.
func newClerkAt(t *testing.T, url, more string) *clerk {
	t.Helper()
	c := &clerk{t: t}
	text := fmt.Sprintf("redis: %s\n%sgateways:\n  bank:\n    request: {url: \"http://127.0.0.1:1\"}\n    amount: {field: amount, currency: currency}\n    leak: {limits: [2000/s]}\n    admission: {burst: 2000}\n    outcomes: {readers: [ledger]}\n", url, more)
	var err error
	c.cfg, err = config.Parse("x.yaml", []byte(text), config.Options{Secrets: true, Payloads: true, Env: func(string) (string, bool) { return strings.Repeat("k", 43) + "=", true }})
	c.must(err)
	db, err := redisdb.Open(t.Context(), url, redisdb.Options{Wait: time.Minute, ReadTimeout: time.Minute}) // a busy machine's Redis may take its time
	c.must(err)
	t.Cleanup(func() { _ = db.Close() })
	c.redis = db.Client
	c.d = New(c.redis, c.cfg.Gateways)
	return c
}

func (c *clerk) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// put accepts jobs. Their payloads contain secret-ID, and so do their references and errors later.
func (c *clerk) put(amount int, ids ...string) (out []job.Admittance) {
	c.t.Helper()
	jobs := make([]job.Job, len(ids))
	for i, id := range ids {
		jobs[i] = job.Job{ID: id, Gateway: "bank", Payload: fmt.Appendf(nil, `{"amount":%d,"currency":"EUR","name":"secret-%s"}`, amount, id), Cost: 1, Batch: "november"}
	}
	answers, err := dispatch.Door(c.redis, c.cfg, time.Second).Admit(c.t.Context(), "bank", jobs, admission.Park)
	c.must(err)
	for _, a := range answers {
		out = append(out, a.Outcome)
	}
	return out
}

// call makes the first call of a job, which ends with this status.
func (c *clerk) call(id string, status int) {
	c.t.Helper()
	g := c.d.Gateways[0]
	a, opening, err := g.Books.Open(c.t.Context(), id, 1, "clerk", time.Second)
	c.must(err)
	if opening != job.OpenGo {
		c.t.Fatal(opening)
	}
	if status == 200 {
		c.must(g.Books.Done(c.t.Context(), a, job.Ending{Called: true, Spent: true, Status: status, Verdict: job.VerdictDone, At: time.Now(), Reference: "ref-secret-" + id}))
		return
	}
	c.must(g.Store.Park(c.t.Context(), a, job.Ending{Called: true, Spent: true, Status: status, Verdict: job.VerdictRefused, At: time.Now(), Error: "HTTP 402: secret-" + id}, job.Refused))
}

func asJSON(o feed.Outcome) string {
	text, err := json.Marshal(o)
	return fmt.Sprint(string(text), err)
}

// onDisk returns the content of Redis's file.
func (c *clerk) onDisk() []byte {
	c.t.Helper()
	c.must(c.srv.Client().Save(c.t.Context()).Err())
	text, err := os.ReadFile(filepath.Join(c.srv.Dir(), "dump.rdb"))
	c.must(err)
	return text
}

func (c *clerk) forget(f Forgetting) ([]ForgetDeed, error) {
	return c.d.Forget(c.t.Context(), f, By{Who: "ann", Why: "ticket 1"}, func(int64) {})
}

func (c *clerk) outcomes() []feed.Outcome {
	c.t.Helper()
	all, err := dispatch.Feed(c.redis, c.cfg.Gateways[0]).Read(c.t.Context(), feed.Cursor{}, 1000)
	c.must(err)
	return all
}

// Nothing of a forgotten job is in Redis, except its id and what the books need.
func TestWhatIsForgottenIsNotInRedis(t *testing.T) {
	t.Parallel()
	c := newClerk(t)
	c.put(4900, "a", "b", "parked", "waits", "gone")
	for _, id := range []string{"a", "b"} {
		c.call(id, 200)
	}
	c.call("parked", 402)
	c.call("gone", 402)
	g := c.d.Gateways[0]
	_, err := g.Store.Discard(t.Context(), []job.Return{{ID: "gone", Generation: 1, Reason: job.Refused}}, time.Hour)
	c.must(err)
	c.must(g.Books.KeepPrints(t.Context(), "november", []byte("secret-a"), time.Hour))
	told := c.outcomes()
	if disk := c.onDisk(); !bytes.Contains(disk, []byte("ref-secret-a")) || !bytes.Contains(disk, []byte("secret-waits")) {
		t.Fatal("Redis's file can't be searched")
	}
	before, err := g.Audit(t.Context(), AuditOptions{Most: 9})
	c.must(err)

	for id, want := range map[string]string{"parked": "dlq discard", "waits": "until it is done"} {
		_, err := c.forget(Forgetting{IDs: []string{"a", id}})
		if e, is := errors.AsType[*job.Error](err); !is || e.Code != job.CodeFailed || !strings.Contains(e.Hint, want) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := c.forget(Forgetting{IDs: []string{"nobody"}}); job.CodeOf(err) != job.CodeNotFound {
		t.Error(err)
	}
	would, err := c.d.WouldForget(t.Context(), Forgetting{Batch: "november"})
	if err != nil || would[0].Jobs != 3 || would[0].NotOver != 2 || would[0].Amount.Of("EUR").Int64() != 14700 {
		t.Errorf("%+v %v", would, err)
	}
	if !bytes.Contains(c.onDisk(), []byte("ref-secret-a")) {
		t.Error("a preview has erased")
	}
	if did, err := c.forget(Forgetting{OlderThan: time.Hour}); err != nil || did[0].Jobs != 0 {
		t.Errorf("nothing is that old: %+v %v", did, err)
	}
	did, err := c.forget(Forgetting{Batch: "november"})
	if err != nil || did[0].Jobs != 3 || did[0].NotOver != 2 {
		t.Errorf("%+v %v", did, err)
	}
	disk := c.onDisk()
	for _, id := range []string{"a", "b", "gone"} {
		if bytes.Contains(disk, []byte("secret-"+id)) {
			t.Errorf("secret-%s is in Redis's file", id)
		}
	}
	if prints, err := g.Books.Prints(t.Context(), "november"); err != nil || prints != nil {
		t.Errorf("what stands for payees is still %q, %v", prints, err)
	}
	if !bytes.Contains(disk, []byte("secret-waits")) || !bytes.Contains(disk, []byte("secret-parked")) {
		t.Error("what is not over has lost its payload")
	}
	if did, err = c.forget(Forgetting{IDs: []string{"a"}}); err != nil || did[0].Jobs != 0 || did[0].Already != 1 {
		t.Errorf("again: %+v %v", did, err)
	}
	c.still(told, before)
}

// still checks what stays when a, b and gone were forgotten.
func (c *clerk) still(told []feed.Outcome, before Audit) {
	c.t.Helper()
	now := c.outcomes()
	for i := range told {
		if told[i].State == "done" {
			told[i].Reference = ""
		}
		if asJSON(now[i]) != asJSON(told[i]) {
			c.t.Errorf("an outcome was %+v, and is %+v", told[i], now[i])
		}
	}
	g := c.d.Gateways[0]
	after, err := g.Audit(c.t.Context(), AuditOptions{Most: 9})
	after.Seconds, before.Seconds = 0, 0
	if err != nil || !after.OK || fmt.Sprint(after) != fmt.Sprint(before) {
		c.t.Errorf("the books were %+v, and are %+v, %v", before, after, err)
	}
	for id, state := range map[string]job.State{"a": job.Done, "gone": job.Discarded} {
		found, err := c.d.FindOne(c.t.Context(), id)
		c.must(err)
		v, err := found.Job(c.t.Context())
		if err != nil || v.State != state || v.ErasedAt == nil || v.Reference != "" || v.Error != "" || v.Amount.Of("EUR").Int64() != 4900 {
			c.t.Errorf("%+v %v", v, err)
		}
	}
	if got := fmt.Sprint(c.put(4900, "a", "b"), c.put(5000, "a")); got != "[duplicate duplicate] [conflict]" {
		c.t.Error(got)
	}
	acts, err := g.Store.LastActs(c.t.Context(), 9)
	c.must(err)
	if last := acts[len(acts)-2]; last.What != "forget" || last.Filter != `--batch "november"` || last.Jobs != 3 || last.Ended == nil || last.Why != "ticket 1" {
		c.t.Errorf("%+v", acts)
	}
	if v, err := g.Store.Verify(c.t.Context(), deadletter.Head{}); err != nil || !v.OK {
		c.t.Errorf("%+v %v", v, err)
	}
}

// A feed that is too long for one step is rewritten in parts.
func TestALongFeedForgets(t *testing.T) {
	t.Parallel()
	c := newClerk(t)
	var ids []string
	for i := range 1100 {
		ids = append(ids, fmt.Sprint("j-", i))
	}
	c.put(100, ids...)
	for _, id := range ids {
		c.call(id, 200)
	}
	told := c.outcomes()
	if _, err := c.forget(Forgetting{IDs: []string{"j-0", "j-600", "j-1099"}}); err != nil {
		t.Fatal(err)
	}
	now := c.outcomes()
	for i, o := range told {
		if o.ID == "j-0" || o.ID == "j-600" || o.ID == "j-1099" {
			o.Reference = ""
		}
		if asJSON(now[i]) != asJSON(o) {
			t.Fatalf("%+v, want %+v", now[i], o)
		}
	}
	if n := c.redis.Exists(t.Context(), "spillway:{bank}:outcomes:anew").Val(); n != 0 || c.redis.TTL(t.Context(), "spillway:{bank}:outcomes").Val() != -1 {
		t.Error("the copy is there, or the feed expires")
	}
}
