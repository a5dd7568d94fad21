package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
	"spillway/internal/testkit"
)

// after calls do once, after the first query of the other gateways.
func (w *anywhere) after(do func()) {
	var begun atomic.Bool
	w.c.(*redis.Client).AddHook(&between{cut: cut{left: 1 << 30}, do: func() {
		if !begun.Swap(true) { // what it does may look, too
			do()
		}
	}})
}

// A gateway that was registered while another offer of the same door read the register is asked, too.
func TestAGatewayThatAnotherOfferFindsIsAskedToo(t *testing.T) {
	t.Parallel()
	w := newAnywhere(t, testkit.Server(t).URL())
	p, q := w.door(), Door(w.c, w.file("dedupe_scope: all\n", w.gone), patience)
	w.admit(p, w.a, payloads(`{}`, "first")...)
	w.admit(p, w.b, payloads(`{}`, "second")...)
	w.admit(p, w.a, payloads(`{}`, "third")...) // it has read the register, with a and b
	if got := w.admit(q, w.gone, payloads(`{}`, "x")...); got != "enqueued" {
		t.Fatal(got)
	}
	w.after(func() { w.admit(p, w.b, payloads(`{}`, "other")...) })
	if got := w.admit(p, w.a, payloads(`{}`, "x")...); got != "duplicate at "+w.gone || w.known("x") != 1 {
		t.Errorf("%s, and %d gateways have it", got, w.known("x"))
	}
}

// An offer that the books turn away keeps no claim. It may wait long for the offer before it, which may in turn wait for a claim of another gateway.
func TestAnOfferThatIsTurnedAwayHoldsNoClaim(t *testing.T) {
	t.Parallel()
	w := newAnywhere(t, testkit.Server(t).URL())
	all := ledger.NewAnywhere(w.c, w.cfg.Names(), func(string) *seal.Box { return nil })
	offer, err := all.Of(w.a, Books(w.c, w.cfg.Gateways[0])).Offer([]job.Newcomer{{Job: payloads(`{}`, "x")[0]}})
	w.must(err)
	ticket := job.Ticket{Sequence: "l2", Number: 1, Behind: job.Place{Sequence: "l1", Number: 1}}
	if _, _, err = offer(t.Context(), ticket, "park"); !redis.HasErrorPrefix(err, "EARLY") {
		t.Fatalf("it overtakes, and is told %v", err)
	}
	if n := w.claimed("x"); n != 0 {
		t.Error("it was turned away, and holds its claim")
	}
	if got := w.admit(w.door(), w.b, payloads(`{}`, "x")...); got != "enqueued" {
		t.Errorf("at another gateway: %s", got)
	}
	ticket.Behind = job.Place{}
	answers, room, err := offer(t.Context(), ticket, "park")
	if err != nil || answers[0] != job.Conflict || room.Elsewhere[0] != w.b || w.known("x") != 1 { // a conflict, as the test's digests are empty
		t.Errorf("and then: %v, %v, %v", answers, room.Elsewhere, err)
	}
}

// A copy of the same offer may still arrive over a stalled connection. The answer to one copy says nothing about the other.
func TestAnOfferThatMayStillComeKeepsItsClaim(t *testing.T) {
	t.Parallel()
	w := newAnywhere(t, testkit.Server(t).URL())
	all, lost := ledger.NewAnywhere(w.c, w.cfg.Names(), func(string) *seal.Box { return nil }), error(io.EOF)
	offer, err := all.Of(w.a, probed{Books(w.c, w.cfg.Gateways[0]), func(job.Ticket) error { return lost }}).Offer(newcomers(1))
	w.must(err)
	ticket := job.Ticket{Sequence: "l2", Number: 1, Behind: job.Place{Sequence: "l1", Number: 1}}
	if _, _, err = offer(t.Context(), ticket, "park"); !errors.Is(err, io.EOF) {
		t.Fatalf("it is lost, and comes to %v", err)
	}
	lost = nil
	if _, _, err = offer(t.Context(), ticket, "park"); !redis.HasErrorPrefix(err, "EARLY") {
		t.Fatalf("it overtakes, and is told %v", err)
	}
	if n := w.claimed("x0"); n != 1 {
		t.Error("it was given back")
	}
}

// aged shortens the life of a claim after each query of the other gateways, as if the query had taken long, and counts the keys of each query.
type aged struct {
	cut
	c     redis.UniversalClient
	claim string
	looks int
	most  int
}

func (a *aged) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		keys := 0
		for _, cmd := range cmds {
			keys += len(cmd.Args()) - 3
		}
		a.looks, a.most = a.looks+1, max(a.most, keys)
		err := next(ctx, cmds)
		return errors.Join(err, a.c.PExpire(ctx, a.claim, 5*time.Second).Err())
	}
}

// probed is books that pass each offer to look first. If look returns an error, the offer is lost.
type probed struct {
	ledger.Offerer
	look func(ticket job.Ticket) error
}

func (p probed) Offer(jobs []job.Newcomer) (job.Offer, error) {
	offer, err := p.Offerer.Offer(jobs)
	return func(ctx context.Context, ticket job.Ticket, mode string) ([]job.Admittance, job.Room, error) {
		if err := p.look(ticket); err != nil {
			return nil, job.Room{}, err
		}
		return offer(ctx, ticket, mode)
	}, err
}

// others returns n more gateway names, which sort after those of the test.
func others(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("zz%04d", i)
	}
	return names
}

func newcomers(n int) []job.Newcomer {
	jobs := make([]job.Newcomer, n)
	for i := range jobs {
		jobs[i].Job = payloads(`{}`, fmt.Sprint("x", i))[0]
	}
	return jobs
}

// However long it takes to ask all gateways, the claims are renewed at the end.
func TestClaimsOutliveALookAtManyGateways(t *testing.T) {
	t.Parallel()
	w := newAnywhere(t, testkit.Server(t).URL())
	claim, _ := redisdb.Claim("x0")
	hook := &aged{cut: cut{left: 1 << 30}, c: redis.NewClient(&redis.Options{Addr: strings.TrimSuffix(strings.TrimPrefix(w.url, "redis://"), "/0")}), claim: claim}
	defer func() { _ = hook.c.(*redis.Client).Close() }()
	w.c.(*redis.Client).AddHook(hook)
	all := ledger.NewAnywhere(w.c, append(w.cfg.Names(), others(250)...), func(string) *seal.Box { return nil })
	offer, err := all.Of(w.a, probed{Books(w.c, w.cfg.Gateways[0]), func(ticket job.Ticket) error {
		tx := hook.c.TxPipeline() // both at one moment
		ttl, now := tx.PTTL(t.Context(), claim), tx.Time(t.Context())
		_, err := tx.Exec(t.Context())
		lives, left := ttl.Val(), time.UnixMicro(ticket.Until).Sub(now.Val())
		if err != nil || lives <= 5*time.Second || lives-left > 9*time.Second {
			t.Errorf("the claim lives for %v, and is to be used within %v: %v", lives, left, err)
		}
		return nil
	}}).Offer(newcomers(admission.ChunkJobs))
	w.must(err)
	answers, _, err := offer(t.Context(), job.Ticket{Sequence: "l", Number: 1}, "park")
	w.must(err)
	if answers[0] != job.Enqueued {
		t.Errorf("it comes to %s", answers[0])
	}
	if hook.looks < 3 || hook.most > 51_000 {
		t.Errorf("%d looks of up to %d keys", hook.looks, hook.most)
	}
}

// A claim that expires while the other gateways are asked is not renewed: a gateway that was asked may have admitted the id since.
func TestAClaimThatEndsDuringALookCountsNoMore(t *testing.T) {
	t.Parallel()
	w := newAnywhere(t, testkit.Server(t).URL())
	w.must(redisdb.Register(t.Context(), w.c, w.b)) // else all are asked once more
	all := ledger.NewAnywhere(w.c, append(w.cfg.Names(), others(250)...), func(string) *seal.Box { return nil })
	offer, err := all.Of(w.a, Books(w.c, w.cfg.Gateways[0])).Offer(newcomers(admission.ChunkJobs))
	w.must(err)
	w.after(func() {
		claim, _ := redisdb.Claim("x0")
		w.must(w.c.Del(t.Context(), claim).Err())
		if got := w.admit(Door(w.c, w.file("dedupe_scope: all\n", w.b), patience), w.b, payloads(`{}`, "x0")...); got != "enqueued" {
			t.Errorf("at the other gateway: %s", got)
		}
	})
	answers, _, err := offer(t.Context(), job.Ticket{Sequence: "l", Number: 1}, "park")
	w.must(err)
	if answers[0] != job.Claimed || answers[1] != job.Enqueued || w.known("x0") != 1 {
		t.Errorf("it comes to %s and %s, and %d gateways have it", answers[0], answers[1], w.known("x0"))
	}
}

// Two producers send the same ids to two gateways in opposite orders. Each sends its next chunk before the previous one is answered. Each id is admitted once, and
// neither producer waits for claims of the other to expire, which takes 12 s.
func TestTwoLinesInOppositeOrdersTakeNoIDTwice(t *testing.T) {
	t.Parallel()
	w := newAnywhere(t, testkit.Server(t).URL())
	for round := range testkit.Often(10, 60) {
		var chunks [4][]job.Job
		for i := range chunks {
			for n := range []int{400, 3, 400, 3}[i] {
				chunks[i] = append(chunks[i], payloads(`{}`, fmt.Sprintf("r%d-%d-%d", round, i, n))...)
			}
		}
		var both sync.WaitGroup
		begun, ended := time.Now(), expired(t, w.c)
		for name, order := range map[string][]int{w.a: {0, 1, 2, 3}, w.b: {2, 1, 0, 3}} {
			both.Go(func() {
				line := w.door().Line()
				defer line.Close()
				before := admission.Answered(nil, nil)
				for _, i := range order {
					now := line.Begin(t.Context(), name, chunks[i], admission.Park)
					if _, err := before.Wait(); err != nil {
						t.Error(err)
					}
					before = now
				}
				if _, err := before.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if took, n := time.Since(begun), expired(t, w.c)-ended; took > 10*time.Second && n > 0 {
			t.Errorf("round %d took %v, and %d claims ended in it", round, took, n)
		}
		for _, j := range slices.Concat(chunks[:]...) {
			if n := w.known(j.ID); n != 1 {
				t.Fatalf("%s is at %d gateways", j.ID, n)
			}
		}
	}
}

// expired returns how many keys of a Redis have expired so far.
func expired(t *testing.T, c redis.UniversalClient) (n int64) {
	t.Helper()
	_, text, _ := strings.Cut(c.Info(t.Context(), "stats").Val(), "expired_keys:")
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
