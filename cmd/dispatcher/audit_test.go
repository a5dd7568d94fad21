package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// runAudit runs dispatcher audit, on a terminal or off one.
func (r *rig) runAudit(terminal bool, args ...string) ran {
	r.t.Helper()
	var out, err bytes.Buffer
	s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &err, OutTerminal: terminal}
	code := cli.Main(name, newCommand, append([]string{"audit", "-c", r.file}, args...), s)
	return ran{r.tidy(out.String()), r.tidy(err.String()), code}
}

// lose breaks the books of gateway one in three ways, and puts a task of an older generation into its queue.
func (r *rig) lose() {
	k := redisdb.NewKeys(r.one)
	r.accept(r.gateway(r.one), job.Enqueued, charge("q1", "1", ""), charge("q2", "1", ""))
	r.c.LRem(r.ctx, k.Pending(), 0, "q1~1")
	r.c.ZAdd(r.ctx, k.Retrying(), redis.Z{Score: 1, Member: "q2"})
	r.c.ZAdd(r.ctx, k.Parked("expired"), redis.Z{Score: 1, Member: "ghost"})
	r.c.LPush(r.ctx, k.Pending(), "q2~9")
}

func TestAuditOfBooksInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.expect(r.runAudit(false), 0, `one	4	0	0	0	0	0	2	0	unknown_outcome 1, refused 1	0	in order
two	2	0	0	0	0	0	0	0	unknown_outcome 1, unreadable 1	0	in order
`, "")
}

func TestAuditListsWhatIsWrong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lose()
	const lost = `q1	queued, but no task of it is in the queue or with a worker	a running dispatcher puts it right within two minutes; if it comes back, find out who else writes to this Redis`
	got := r.runAudit(false, "-g", r.one)
	if got.code != 1 || !strings.HasPrefix(got.out, "one\t2\t0\t2\t0\t1\t0\t0\t0\texpired 1\t0\t4 faults\n") || !strings.Contains(got.out, "\none\t"+lost+"\n") {
		t.Errorf("exit code %d, want 1, and q1 in the list:\n%s", got.code, got.out)
	}
	for _, want := range []string{"one\tq2\tqueued, but in retrying too\t", "one\tghost\tin parked:expired, but it has no record\t",
		"one\t\taccepted: 2, found: 4 (stale tasks: 1)\t"} {
		if !strings.Contains(got.out, "\n"+want) {
			t.Errorf("%q is not in the list:\n%s", want, got.out)
		}
	}
	if !strings.HasPrefix(got.err, "dispatcher: the books of one are not in order: 4 faults\nhint: ") || strings.Count(got.err, "\nhint: ") != 3 {
		t.Errorf("standard error:\n%s", got.err)
	}
	if strings.Contains(got.out, "q2~9") {
		t.Errorf("old paper is listed as a fault:\n%s", got.out)
	}
	if got := r.runAudit(true, "-g", r.one, "--verbose", "--limit", "1"); !strings.Contains(got.out, "\n\nGATEWAY") ||
		!strings.Contains(got.out, "a task of a job that has moved on") || !strings.Contains(got.err, "4 faults, 3 of them not listed (--limit)") {
		t.Errorf("on a terminal:\n%s%s", got.out, got.err)
	}
}

func TestAuditAsJSON(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lose()
	got := r.runAudit(true, "-o", "json", "--limit", "2")
	var v struct {
		OK       bool         `json:"ok"`
		Gateways []desk.Audit `json:"gateways"`
	}
	r.must(json.Unmarshal([]byte(got.out), &v))
	if got.code != 1 || v.OK || len(v.Gateways) != 2 || v.Gateways[0].OK || !v.Gateways[1].OK {
		t.Fatalf("exit code %d:\n%s", got.code, got.out)
	}
	one := v.Gateways[0]
	if one.Faults != 4 || len(one.Findings) != 2 || one.NotesAll != 1 || len(one.Notes) != 1 || one.Notes[0].What != "old_task" || one.Accepted != 2 {
		t.Errorf("gateway one: %+v", one)
	}
	for _, field := range []string{`"findings":[]`, `"notes":[]`, `"parked":{}`} {
		if !strings.Contains(got.out, field) {
			t.Errorf("an empty %s is left out:\n%s", field, got.out)
		}
	}
}

func TestAuditAskedWrongly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if got := r.runAudit(false, "-g", "nobody"); got.code != 4 || !strings.Contains(got.err, `no gateway "nobody"`) {
		t.Errorf("exit code %d:\n%s", got.code, got.err)
	}
	if got := r.runAudit(false, "--limit", "-1"); got.code != 2 {
		t.Errorf("exit code %d:\n%s", got.code, got.err)
	}
	r.configure("redis://127.0.0.1:1/0")
	if got := r.runAudit(false); got.code != 5 || !strings.Contains(got.err, "Redis") {
		t.Errorf("exit code %d:\n%s", got.code, got.err)
	}
}
