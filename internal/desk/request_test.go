package desk

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
	"spillway/internal/testkit"
)

// seconded is the desk of a gateway where a second person has to approve replays of more than two jobs, discards, and lifts of its brake.
type seconded struct {
	t   *testing.T
	cfg *config.Config
	d   *Desk
	g   *Gateway
}

func newSeconded(t *testing.T) *seconded {
	t.Helper()
	text := "redis: redis://x\ngateways:\n  " + testkit.Gateway(t) + `:
    request: {url: "http://gateway.invalid/", key_lifetime: 24h}
    amount: {field: amount, currency: currency}
    leak: {limits: [100/s]}
    replay: manual
    brakes: [{limit: EUR 10/10m}]
    approval: {replay_over: 2, discard: always, brake_lift: always}
`
	cfg, err := config.Parse("x.yaml", []byte(text), config.Options{})
	s := &seconded{t: t, cfg: cfg}
	s.must(err)
	s.d = New(testkit.Client(t), cfg.Gateways)
	s.g = s.d.Gateways[0]
	return s
}

func (s *seconded) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// refused accepts jobs and parks them as refused.
func (s *seconded) refused(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		jobs := []job.Job{{ID: id, Gateway: s.g.Name, Payload: []byte(`{"amount":100,"currency":"EUR"}`), Cost: 1}}
		answers, err := dispatch.Door(s.g.redis, s.cfg, time.Second).Admit(s.t.Context(), s.g.Name, jobs, admission.Park)
		s.must(err)
		if answers[0].Outcome != job.Enqueued {
			s.t.Fatalf("%s: %+v", id, answers[0])
		}
		a, _, err := s.g.Books.Open(s.t.Context(), id, 1, "o", time.Minute)
		s.must(err)
		s.must(s.g.Store.Park(s.t.Context(), a, job.Ending{Called: true, Spent: true, Status: 402, Verdict: job.VerdictRefused, At: time.Now(), Error: "HTTP 402"}, job.Refused))
	}
}

func by(name string) By { return By{Who: name, Why: "a ticket of " + name, Via: roles.ByToken} }

// asks starts an action as ann, and returns the request for it. It returns nil if the action is done at once.
func (s *seconded) asks(a Action, f deadletter.Filter) *Request {
	s.t.Helper()
	plan, err := s.g.alone(f).Plan(s.t.Context(), a, Options{})
	s.must(err)
	return s.waits(plan.Run(s.t.Context(), by("ann"), nil, func(*Bulk) {})[0])
}

func (s *seconded) waits(err error) *Request {
	s.t.Helper()
	waits, is := errors.AsType[*Awaits](err)
	if is && job.CodeOf(err) == job.CodeInvalid {
		return &waits.Request
	}
	s.must(err)
	return nil
}

// again reads a request as somebody else does.
func (s *seconded) again(id string) *Request {
	s.t.Helper()
	r, err := s.d.Request(s.t.Context(), id)
	s.must(err)
	return &r
}

func (s *seconded) approve(id, who string) error {
	s.t.Helper()
	_, err := s.again(id).Approve(s.t.Context(), by(who), nil, func(*Bulk) {})
	return err
}

func (s *seconded) says(what, want string, err error) {
	s.t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		s.t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// states returns the states of jobs.
func (s *seconded) states(ids ...string) string {
	s.t.Helper()
	var all []string
	for _, id := range ids {
		found, err := s.d.FindOne(s.t.Context(), id)
		s.must(err)
		all = append(all, string(found.Record.State))
	}
	return strings.Join(all, " ")
}

func (s *seconded) history() (all []string) {
	s.t.Helper()
	for a, err := range s.g.Store.Acts(s.t.Context()) {
		s.must(err)
		all = append(all, strings.Join(strings.Fields(fmt.Sprintf("%s: %s %d %s", a.Who, a.What, a.Jobs, a.Asked)), " "))
	}
	return all
}

// An act that needs a second person becomes a request, with its filter, its person, its reason and its jobs. The person who made it can't approve it.
// Another person can, once. The trail has both.
func TestAnActWaitsForASecondPerson(t *testing.T) {
	t.Parallel()
	s := newSeconded(t)
	s.refused("a", "b", "c")
	if r := s.asks(Replay, deadletter.Filter{IDs: []string{"a", "b"}}); r != nil || s.states("a", "b") != "queued queued" {
		t.Fatalf("a replay of two jobs: %+v", r)
	}
	r := s.asks(Discard, deadletter.Filter{Reasons: []job.Reason{job.Refused}})
	if r == nil || s.states("c") != "parked" || r.Jobs != 1 || r.Amount["EUR"].Int64() != 100 || r.By != "ann" || r.Via != "token" || r.Why != "a ticket of ann" || !strings.Contains(r.Filter, "--reason refused") ||
		r.Until.Sub(r.Asked) != 24*time.Hour {
		t.Fatalf("a discard: %+v", r)
	}
	all, err := s.d.Requests(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != r.ID || all[0].State != "asked" {
		t.Fatalf("open are %+v, %v", all, err)
	}
	s.says("his own", "nobody may approve their own request", s.approve(r.ID, "Ann"))
	_, err = s.again(r.ID).Approve(t.Context(), By{Who: "ben", Why: "x", Via: roles.ByRedis}, nil, nil)
	s.says("with Redis's password", "you are not identified", err)
	s.refused("later") // it is not meant
	one, other := s.again(r.ID), s.again(r.ID)
	errs := make([]error, 2)
	var both sync.WaitGroup
	both.Go(func() { _, errs[0] = one.Approve(t.Context(), by("ben"), nil, func(*Bulk) {}) })
	both.Go(func() { _, errs[1] = other.Approve(t.Context(), by("eve"), nil, func(*Bulk) {}) })
	both.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("two approve it at once: %v, %v", errs[0], errs[1])
	}
	if got := s.states("a", "b", "c", "later"); got != "queued queued discarded parked" {
		t.Errorf("approved, they are %s", got)
	}
	if r := s.again(r.ID); r.State != "done" || r.Decided == nil || r.DecidedBy != "ben" && r.DecidedBy != "eve" {
		t.Errorf("approved, it is %+v", r)
	}
	s.says("once more", "has approved it", s.approve(r.ID, "zoe"))
	if all, _ := s.d.Requests(t.Context()); len(all) != 0 {
		t.Errorf("afterwards, open are %+v", all)
	}
	did := s.again(r.ID).DecidedBy
	if got, want := strings.Join(s.history(), ", "), "ann: replay 2, ann: ask for discard 0, "+did+": discard 1 ann (token)"; got != want {
		t.Errorf("the trail has %s, want %s", got, want)
	}
}

// An act that admits jobs again counts as a replay, and one that ends them as a discard.
func TestWhichActsNeedASecondPerson(t *testing.T) {
	t.Parallel()
	s := newSeconded(t)
	for _, c := range []struct {
		a    Action
		jobs int64
		want bool
	}{
		{Replay, 2, false}, {Replay, 3, true}, {NotDone, 2, false}, {NotDone, 3, true}, {Ask, 1000, false}, {Discard, 1, true}, {Discard, 0, false}, {Done, 1, true},
	} {
		if got := s.g.needsSecond(c.a, c.jobs); got != c.want {
			t.Errorf("%s of %d: %t", c.a.Name, c.jobs, got)
		}
	}
	s.refused("a", "b", "c")
	b, err := s.g.Bulk(t.Context(), Replay, deadletter.Filter{Until: time.Now().Add(time.Hour)}, Options{}) // as the console does it, which has shown it before
	s.must(err)
	if r := s.waits(b.Run(t.Context(), by("ann"), nil, nil)); r == nil || r.Jobs != 3 || s.states("a", "b", "c") != "parked parked parked" {
		t.Errorf("three jobs at the console: %+v", r)
	}
}

// A request can't be approved if its jobs have changed, if it was rejected, or if it is too old.
func TestARequestIsOfWhatWasShown(t *testing.T) {
	t.Parallel()
	s := newSeconded(t)
	s.refused("a", "b", "c")
	replay := s.asks(Replay, deadletter.Filter{})
	_, err := s.g.Store.Discard(t.Context(), []job.Return{{ID: "b", Generation: 1, Reason: job.Refused}}, time.Hour)
	s.must(err)
	s.says("a job less", "has changed since it was shown", s.approve(replay.ID, "ben"))
	s.refused("d")
	replay = s.asks(Replay, deadletter.Filter{})
	r := s.g.newReplacement(t)
	r("a", `{"amount":100,"currency":"EUR","payee":"somebody else"}`)
	s.says("another payload of the same amount", "has changed since it was shown", s.approve(replay.ID, "ben"))
	if got := s.states("a", "c", "d"); got != "parked parked parked" {
		t.Errorf("they are %s", got)
	}
	discard := s.asks(Discard, deadletter.Filter{IDs: []string{"c"}})
	s.must(s.again(discard.ID).Reject(t.Context(), by("ann")))
	s.says("rejected", "ann has rejected it", s.approve(discard.ID, "ben"))
	discard = s.asks(Discard, deadletter.Filter{IDs: []string{"c"}})
	s.must(s.g.redis.HSet(t.Context(), redisdb.NewKeys(s.g.Name).Request(discard.ID), "until", time.Now().Add(-time.Second).UnixMicro()).Err())
	s.says("too late", "not decided within 1d", s.approve(discard.ID, "ben"))
	if got := s.states("c"); got != "parked" {
		t.Errorf("c is %s", got)
	}
	if _, err := s.d.Request(t.Context(), "nobody"); job.CodeOf(err) != job.CodeNotFound {
		t.Errorf("one that there is not: %v", err)
	}
}

// newReplacement returns a function that gives a parked job another payload, and leaves it parked.
func (g *Gateway) newReplacement(t *testing.T) func(id, payload string) {
	return func(id, payload string) {
		t.Helper()
		j := job.Job{ID: id, Payload: []byte(payload)}
		rules, err := dispatch.Rules(t.Context(), g.redis, g.Gateway)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := g.Store.Replace(t.Context(), rules, []job.Job{j}, digests([]job.Job{j})); err != nil || got[0].Err != nil {
			t.Fatal(got, err)
		}
	}
}

// A process is killed between an approval and its act, or during the act. A dispatcher of the gateway continues the act, once, and only when the
// process has given no sign of life for a while.
func TestWhatWasApprovedIsGoneOnWith(t *testing.T) {
	t.Parallel()
	s := newSeconded(t)
	s.refused("a", "b", "c")
	r := s.asks(Replay, deadletter.Filter{})
	s.must(s.g.Books.Decide(t.Context(), r.ID, ledger.Decision{Approver: ledger.Approver{Who: "ben", Why: "fine"}, Via: "token", Approve: true, Owner: "killed"}))
	_, _, err := s.g.Books.Readmit(t.Context(), []job.Return{{ID: "a", Generation: 1, Reason: job.Refused, Key: job.NextKey}}) // so far it came
	s.must(err)
	s.goesOn("while the approver may still do it", 0)
	if all, _ := s.d.Requests(t.Context()); len(all) != 1 || all[0].State != "approved" {
		t.Errorf("open are %+v", all)
	}
	s.says("approved again", "ben has approved it", s.approve(r.ID, "eve"))
	s.g.newReplacement(t)("c", `{"amount":100,"currency":"EUR","payee":"somebody else"}`) // nobody has approved that
	s.overdue(r.ID)
	s.goesOn("when the approver's process has died", 1)
	s.goesOn("once more", 0)
	if got := s.states("a", "b", "c"); got != "queued queued parked" || s.again(r.ID).State != "done" {
		t.Errorf("they are %s, and it is %s", got, s.again(r.ID).State)
	}
	if got := s.history(); got[len(got)-1] != "ben: replay 1 ann (token)" {
		t.Errorf("the trail has %v", got)
	}
	s.refused("d")
	r = s.asks(Discard, deadletter.Filter{IDs: []string{"d"}})
	s.must(s.g.Books.Decide(t.Context(), r.ID, ledger.Decision{Approver: ledger.Approver{Who: "ben"}, Approve: true, Owner: "killed"}))
	_, err = s.g.Store.Discard(t.Context(), []job.Return{{ID: "d", Generation: 1, Reason: job.Refused}}, time.Hour) // killed before he could say so
	s.must(err)
	s.overdue(r.ID)
	s.goesOn("with nothing left to do", 1)
	if got := s.again(r.ID).State; got != "done" {
		t.Errorf("it is %s", got)
	}
}

func (s *seconded) goesOn(when string, want int) {
	s.t.Helper()
	done, err := s.d.GoOn(s.t.Context(), nil)
	if err != nil || len(done) != want {
		s.t.Errorf("%s, a dispatcher goes on with %+v, %v", when, done, err)
	}
}

// overdue makes it look as if the process that carries out a request had died.
func (s *seconded) overdue(id string) {
	s.t.Helper()
	s.must(s.g.redis.HSet(s.t.Context(), redisdb.NewKeys(s.g.Name).Request(id), "lease", 1).Err())
}

// A lift of brakes is requested, and done once. It ends at the same time if its process is killed and another one continues.
func TestALiftWaitsForASecondPersonAndIsDoneOnce(t *testing.T) {
	t.Parallel()
	s := newSeconded(t)
	lifted := func() bool {
		v, err := s.g.Brakes(t.Context())
		s.must(err)
		return v.LiftedUntil != nil
	}
	r := s.waits(s.g.LiftBrakes(t.Context(), by("ann"), 2*time.Hour, false))
	if r == nil || r.What != "brake lift 2h" || lifted() {
		t.Fatalf("asked for: %+v", r)
	}
	s.must(s.approve(r.ID, "ben"))
	if v, _ := s.g.Brakes(t.Context()); !lifted() || v.LiftedBy != "ben" || s.again(r.ID).State != "done" {
		t.Errorf("approved: %+v", v)
	}
	if again := s.waits(s.g.LiftBrakes(t.Context(), by("ann"), 0, false)); again != nil || lifted() {
		t.Errorf("to end it needs a second person: %+v", again)
	}
	s.overdue(r.ID)
	s.goesOn("done already", 0)
	r = s.waits(s.g.LiftBrakes(t.Context(), by("ann"), 2*time.Hour, false))
	s.must(s.g.Books.Decide(t.Context(), r.ID, ledger.Decision{Approver: ledger.Approver{Who: "ben", Why: "fine"}, Via: "token", Approve: true, Owner: "killed"}))
	key := redisdb.NewKeys(s.g.Name).Request(r.ID)
	s.must(s.g.redis.HSet(t.Context(), key, "decided", time.Now().Add(-30*time.Minute).UnixMicro()).Err())
	s.overdue(r.ID)
	s.goesOn("killed before the lift", 1)
	v, err := s.g.Brakes(t.Context())
	if left := time.Until(*v.LiftedUntil); err != nil || left > 90*time.Minute+time.Minute || left < 80*time.Minute {
		t.Errorf("it ends in %s", left)
	}
	s.must(s.g.LiftBrakes(t.Context(), by("zoe"), 0, false))
	s.must(s.g.redis.HSet(t.Context(), key, "owner", "late").Err())
	s.must(s.again(r.ID).carry(t.Context(), nil, by("ben"), "late", nil, nil)) // of a process that was stopped all the while
	if lifted() {
		t.Error("it was lifted twice")
	}
	lost := s.waits(s.g.LiftBrakes(t.Context(), by("ann"), 0, true))
	if lost == nil {
		t.Fatal("a loss is forgiven by one alone")
	}
	brakes := redisdb.NewKeys(s.g.Name).Brakes()
	s.must(s.g.redis.HSet(t.Context(), brakes, "full", time.Now().UnixMicro()).Err()) // nobody has asked the gateway about this one
	s.must(s.approve(lost.ID, "ben"))
	if v, err := s.g.Brakes(t.Context()); err != nil || v.Limits[0].UnknownUntil == nil {
		t.Errorf("a loss that came after it was asked for is forgiven: %+v, %v", v, err)
	}
	s.must(s.approve(s.waits(s.g.LiftBrakes(t.Context(), by("ann"), 0, true)).ID, "ben"))
	if v, err := s.g.Brakes(t.Context()); err != nil || v.Limits[0].UnknownUntil != nil {
		t.Errorf("asked for after the loss: %+v, %v", v, err)
	}
}

// An act takes only the jobs that were counted to decide whether it needs an approval, although a form may say any time up to which they were parked.
func TestNoMoreIsDoneThanWasCounted(t *testing.T) {
	t.Parallel()
	s := newSeconded(t)
	s.refused("a", "b")
	b, err := s.g.Bulk(t.Context(), Replay, deadletter.Filter{Until: time.Now().Add(time.Hour)}, Options{})
	s.must(err)
	if asked, err := b.ask(t.Context(), by("ann")); asked || err != nil {
		t.Fatalf("two jobs: %t, %v", asked, err)
	}
	s.refused("c", "d")
	found := 0
	for _, err := range s.g.Store.List(t.Context(), b.meant()) {
		s.must(err)
		found++
	}
	if found != 2 {
		t.Errorf("%d jobs are meant, and two were counted", found)
	}
}

// A name that looks like a card number is masked in the trail. A person with such a name still can't approve their own request.
func TestNobodyApprovesHisOwnActByAMaskedName(t *testing.T) {
	t.Parallel()
	s := newSeconded(t)
	const number = "4111111111111111"
	for _, asker := range []By{by(number), {Who: number + "@example.com", Why: "a ticket", Via: roles.ByLogin}, {Who: "night-shift", Person: number, Why: "a ticket", Via: roles.ByToken}} {
		r := s.waits(s.g.LiftBrakes(t.Context(), asker, time.Hour, false))
		for _, approver := range []By{asker, {Who: number, Why: "fine", Via: roles.ByLogin}} {
			_, err := s.again(r.ID).Approve(t.Context(), approver, nil, func(*Bulk) {})
			s.says(asker.Who+" by "+approver.Who, "nobody may approve their own request", err)
		}
		s.must(s.approve(r.ID, "ben"))
	}
}

// A request moves with its gateway when that is renamed. It can't be approved meanwhile.
func TestARequestGoesAlongWithItsGateway(t *testing.T) {
	t.Parallel()
	s := newSeconded(t)
	s.refused("a", "b", "c")
	r := s.asks(Replay, deadletter.Filter{})
	to := newSeconded(t)
	m := dispatch.Moving{Redis: s.g.redis, Old: s.g.Name, New: to.g.Gateway, Act: deadletter.Act{Who: "ops", What: "gateway rename"}}
	s.must(s.g.redis.HSet(t.Context(), redisdb.NewKeys(s.g.Name).Alive(), "moving", "rename").Err())
	s.says("meanwhile", "is not to be used now", s.approve(r.ID, "ben"))
	s.must(s.g.redis.HDel(t.Context(), redisdb.NewKeys(s.g.Name).Alive(), "moving").Err())
	s.must(m.Rename(t.Context()))
	if _, err := s.d.Request(t.Context(), r.ID); job.CodeOf(err) != job.CodeNotFound {
		t.Errorf("by its old name: %v", err)
	}
	s.must(to.approve(r.ID, "ben"))
	if got := to.states("a", "b", "c"); got != "queued queued queued" {
		t.Errorf("they are %s", got)
	}
}

// A gateway has at most a hundred open requests. Void ones make room.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSeconded(t)
	s.refused("a")
	var first *Request
	for range 100 {
		r := s.asks(Discard, deadletter.Filter{IDs: []string{"a"}})
		if first == nil {
			first = r
		}
	}
	plan, err := s.g.alone(deadletter.Filter{}).Plan(t.Context(), Discard, Options{})
	s.must(err)
	s.says("one more", "no more are taken", plan.Run(t.Context(), by("ann"), nil, func(*Bulk) {})[0])
	s.must(s.g.redis.ZAdd(t.Context(), redisdb.NewKeys(s.g.Name).Requests(), redis.Z{Score: 1, Member: first.ID}).Err())
	if r := s.asks(Discard, deadletter.Filter{}); r == nil {
		t.Error("none is taken when one is void")
	}
}
