package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/double"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// corner is a gateway whose configuration has only its address and its limit. Its idempotency keys live for 6 minutes.
const corner = `
gateway: corner/v1
about: "The bank at the corner."
read: 2026-11-24
auth: {header: Content-Type}
request: {encoding: json, amount: amount, unit: minor, reference: [reference]}
keys: [{in: header, name: Idempotency-Key, life: 6m}]
saved: {2xx: answer, 4xx: answer, 5xx: [answer, state]}
running: [conflict, wait]
id: "pay_{n}"
payment: '{"id":"{id}","status":"{status}"}'
words: {paid: paid}
normal: paid
answers:
  paid: {status: 201}
  decline: {status: 402}
  conflict: {status: 409}
  error: {status: 500}
  invalid: {status: 400}
  unauthorised: {status: 401}
  not-found: {status: 404}
  unavailable: {status: 503}
  429: {status: 429, headers: {Retry-After: "{retry_after}"}}
limits: [{limit: 20/s, over: account, answer: 429}]
fates: {key-forgotten: {}, saved-500: {}}
`

// minimal is the smallest possible configuration.
const minimal = "    request: {url: \"http://gateway.invalid/pay\"}\n    leak: {limits: [20/s]}\n"

// spell is trouble that all jobs meet for a while, in addition to troubles of single jobs.
type spell struct {
	from, to time.Duration
	fate     string // "": an operator's pause
	dies     bool   // a process dies in the middle of it, and another one begins at its end
}

func (s spell) String() string {
	return fmt.Sprintf("%s to %s %s, dies %v", s.from, s.to, s.fate, s.dies)
}

// spells draws troubles, one after the other, that may last longer than keys live.
func spells(rng *rand.Rand) (all []spell) {
	at := time.Second
	for range 3 {
		s := spell{from: at + time.Duration(rng.IntN(5000))*time.Millisecond, dies: rng.IntN(2) == 0}
		s.to = s.from + time.Duration(60+rng.IntN(660))*time.Second
		s.fate = one(rng, "", "unavailable=job=*", "5xx=job=*", "5xx=job=*,charge=true", "cut-after-charge=job=*", "cut-before-charge=job=*", "429=job=*", "expired-token=job=*", "slow=job=*,delay=90s")
		all = append(all, s)
		at = s.to + time.Duration(rng.IntN(60))*time.Second
	}
	return all
}

// lonely are the fates of single jobs. Each applies to 3 % of the jobs.
var lonely = []string{"key-forgotten", "cut-after-charge", "cut-before-charge", "saved-500", "5xx", "slow", "decline", "429"}

// playMinimal runs one seed with the minimal file and the settings more, and returns what is wrong.
func playMinimal(t *testing.T, seed uint64, more string) (wrong []string) {
	t.Helper()
	table, err := double.Parse([]byte(corner))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 7))
	troubles := spells(rng)
	open(t, table, double.Options{Service: 20 * time.Millisecond}, strings.Replace(minimal, "/pay\"", "/pay\""+more, 1), func(s *shop) {
		for range 1 + rng.IntN(2) {
			s.hire()
		}
		s.alone(seed)
		ids := s.suffer(rng, troubles)
		s.settled(2 * time.Hour)
		for _, id := range ids {
			if fault := s.judged(id); fault != "" {
				wrong = append(wrong, fault+s.story(id))
			}
		}
		if len(wrong) > 0 {
			wrong = append(wrong, fmt.Sprint(troubles))
		}
	})
	return wrong
}

// arm gives jobs fates, written as on the command line.
func (s *shop) arm(texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		f, err := double.ParseFate(text)
		s.must(err)
		s.must(s.double.Arm(f))
	}
}

// suffer runs troubles, admits payments before and during each, and returns their ids.
func (s *shop) suffer(rng *rand.Rand, troubles []spell) (ids []string) {
	more := func() {
		var jobs []job.Job
		for range 10 + rng.IntN(20) {
			id := fmt.Sprintf("inv-%03d", len(ids))
			ids = append(ids, id)
			jobs = append(jobs, job.Job{ID: id, Gateway: s.g.Name, Payload: fmt.Appendf(nil, `{"amount":%d,"reference":%q}`, 100+len(ids), id), Cost: 1})
		}
		s.take(jobs...)
	}
	for _, t := range troubles {
		s.wait(t.from - 300*time.Millisecond)
		more()
		s.wait(t.from)
		s.begin(t)
		s.wait((t.from + t.to) / 2)
		more()
		if t.dies {
			s.all[len(s.all)-1].dead.Store(true)
		}
		s.wait(t.to)
		s.end(t)
	}
	return ids
}

// alone gives single jobs their fates.
func (s *shop) alone(seed uint64) {
	for _, name := range lonely {
		s.arm(fmt.Sprintf("%s=share=3%%,seed=%d", name, seed))
	}
}

// begin begins a trouble.
func (s *shop) begin(t spell) {
	if t.fate == "" {
		s.must(s.all[len(s.all)-1].d.units()[0].pacer.Pause(s.t.Context(), "a test"))
		return
	}
	s.double.Disarm()
	s.arm(t.fate + ",calls=all")
}

func (s *shop) end(t spell) {
	if t.dies {
		s.hire()
	}
	if t.fate == "" {
		s.must(s.all[len(s.all)-1].d.units()[0].pacer.Resume(s.t.Context()))
		return
	}
	s.double.Disarm()
	s.alone(uint64(t.to))
}

// judged says what is wrong with a job's end; empty: nothing.
func (s *shop) judged(id string) string {
	charges := 0
	for _, e := range s.double.Ledger() {
		if e.Job == id {
			charges++
		}
	}
	switch rec := s.record(id); {
	case charges > 1, rec.State == job.Done && charges != 1, rec.Reason == job.Refused && charges != 0, rec.State != job.Done && rec.State != job.Parked:
		return fmt.Sprintf("%s is %s %s and charged %d times: %s", id, rec.State, rec.Reason, charges, rec.Error)
	}
	return ""
}

// hard is a seed whose troubles charge twice if keys are trusted for longer than they live.
const hard = 7

// The minimal file charges no job twice at a gateway whose keys live for 6 minutes, although answers are lost, calls fail, the gateway is paused, and processes
// die, for longer than that.
func TestTheMinimalFileChargesNobodyTwice(t *testing.T) {
	t.Parallel()
	seeds := []uint64{3, hard} // they are soon over
	for n := range uint64(testkit.Often(0, 100)) {
		if !slices.Contains(seeds, n) {
			seeds = append(seeds, n)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if wrong := playMinimal(t, seed, ""); len(wrong) > 0 {
				t.Errorf("%d wrong:\n%s", len(wrong), strings.Join(shortened(wrong), "\n"))
			}
		})
	}
}

// With keys that are trusted for a day, as most gateways keep them, the same file charges twice. This is why keys are trusted for 5 minutes by default.
func TestAKeyTrustedForADayIsChargedTwice(t *testing.T) {
	t.Parallel()
	if wrong := playMinimal(t, hard, ", key_lifetime: 24h"); len(wrong) == 0 {
		t.Error("nobody was charged twice: the stories of the minimal file prove nothing")
	}
}
