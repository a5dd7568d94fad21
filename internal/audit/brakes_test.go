package audit_test

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"spillway/internal/audit"
	"spillway/internal/job"
)

// counted has five jobs of EUR 1 each called, the last of which is in flight, at a gateway with brakes.
func counted(t *testing.T) *bench {
	b := setup(t, 100)
	b.cfg.Brakes.Limits = []job.MoneyLimit{{Most: job.Money{Minor: big.NewInt(1e6), Currency: "EUR"}, Window: time.Minute}}
	b.withMoney()
	b.now += time.Hour.Microseconds()
	for _, id := range []string{"first", "a", "b", "c", "open"} {
		b.accept("park", member(id, "x"))
		_, g := b.pull()
		a, o := b.open(id, g, "me.1")
		want(t, "opening of "+id, o, job.OpenGo)
		if id != "open" {
			b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
			b.finish(id, g)
		}
		if b.now += 1e6; id == "first" {
			b.now += 10 * time.Minute.Microseconds() // so long after the first one calls are held against what is counted
		}
	}
	return b
}

const (
	minute = "EUR:60000000"
	day    = "EUR:86400000000"
)

// parts are the fields with the money of a window's parts.
func (b *bench) parts(window string) (fields []string) {
	for field := range b.c.HGetAll(b.ctx, b.keys.Brakes()).Val() {
		if strings.HasPrefix(field, "b:"+window+":") {
			fields = append(fields, field)
		}
	}
	if len(fields) == 0 {
		b.t.Fatalf("nothing is counted in %s", window)
	}
	return fields
}

func TestAnAuditFindsAndRepairsWhatBrakesCount(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct {
		spoil func(b *bench)
		says  string
	}{
		"a sum that nothing ends":    {func(b *bench) { b.c.HIncrBy(b.ctx, b.keys.Brakes(), "s:"+minute, 900) }, "of EUR in 1m: its sum is EUR 13.00, and its parts come to EUR 4.00"},
		"a sum that is too small":    {func(b *bench) { b.c.HSet(b.ctx, b.keys.Brakes(), "s:"+day, 1) }, "of EUR in 1d: its sum is EUR 0.01, and its parts come to EUR 5.00"},
		"a part beyond the last one": {func(b *bench) { b.c.HSet(b.ctx, b.keys.Brakes(), "h:"+minute, "1 2") }, "of EUR in 1m: a part of it is beyond"},
		"calls that are not counted": {func(b *bench) {
			b.c.HDel(b.ctx, b.keys.Brakes(), b.parts(day)...)
			b.c.HDel(b.ctx, b.keys.Brakes(), "s:"+day, "h:"+day)
		}, "of EUR in 1d: its sum is EUR 0.00, and the calls of jobs come to EUR 3.00"},
		"an open attempt that is not counted": {func(b *bench) {
			b.c.HDel(b.ctx, b.keys.Brakes(), b.parts(minute)...)
			b.c.HDel(b.ctx, b.keys.Brakes(), "s:"+minute, "h:"+minute)
		}, "of EUR in 1m: open attempts are missing in it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := counted(t)
			b.clean("before")
			m.spoil(b)
			a := b.check(false)
			if a.Faults.Total != 1 || a.Faults.List[0].What != audit.BrakeSums || !strings.Contains(a.Faults.List[0].Describe(), "what the brakes of "+b.name+" count "+m.says) ||
				!strings.Contains(a.Faults.List[0].Hint(), "dispatcher audit --repair") {
				t.Errorf("the audit finds %+v", a.Faults)
			}
			if a := b.check(true); a.Faults.Total != 0 {
				t.Errorf("to be repaired: %+v", a.Faults)
			}
			b.clean("after the repair")
			s, err := b.books.Brakes(b.ctx)
			if b.must(err); s.Windows[0].Called < 100 {
				t.Errorf("after the repair %d are counted, and an attempt is under way", s.Windows[0].Called)
			}
		})
	}
}
