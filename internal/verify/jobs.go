package verify

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mostPlaces is how many lines a finding lists, and how many answers of a job are told apart.
const mostPlaces = 10

// The states and reasons in exports.
const (
	stateDone      = "done"
	stateParked    = "parked"
	stateDiscarded = "discarded"
	stateForgotten = "forgotten"
	stateInFlight  = "in_flight"
)

// account is everything known of one job.
type account struct {
	gateway, id string
	book        *book
	booked      []Place
	bookFile    int
	listed      []Place
	calls       int64 // without look-ups
	called      []Place
	first       int64   // time of the first call
	statuses    []int64 // of calls and look-ups
	charges     int64
	charged     []Place
	money       []money         // of the first charges
	paid        map[string]bool // keys that had a successful answer
	reference   string          // of the first charge
}

// judgeJobs checks all lines of each job together.
func (c *checker) judgeJobs(ctx context.Context) error {
	a, of := &account{}, []byte(nil)
	err := c.jobs.each(ctx, func(key, value []byte) error {
		// gateway 0 id 0 kind at file line
		tail := len(key) - tailOfStamp
		if job := key[:tail-2]; !bytes.Equal(job, of) {
			if err := c.judge(a); err != nil {
				return err
			}
			of = append(of[:0], job...)
			gateway, id, _ := strings.Cut(string(job), "\x00")
			a = &account{gateway: gateway, id: id}
		}
		numbers := key[tail:]
		a.add(c, key[tail-1], number(numbers, 0), int(number(numbers, 1)), number(numbers, 2), value)
		return nil
	})
	c.jobs.close()
	if err != nil {
		return err
	}
	return c.judge(a)
}

func (a *account) add(c *checker, from byte, at int64, file int, line int64, value packed) {
	place := c.place(file, line)
	note := func(to *[]Place) {
		if len(*to) < mostPlaces {
			*to = append(*to, place)
		}
	}
	switch from {
	case fromJobs:
		note(&a.listed)
		return
	case fromBooks:
		if note(&a.booked); a.book == nil {
			b := bookOf(value)
			a.book, a.bookFile = &b, file
		}
		return
	}
	a.call(c.side(a.gateway), callOf(value), at, note)
}

// call records a call. Calls come in time order.
func (a *account) call(s *Side, k call, at int64, note func(*[]Place)) {
	if !slices.Contains(a.statuses, k.status) && len(a.statuses) < mostPlaces {
		a.statuses = append(a.statuses, k.status)
	}
	if k.status == tooMany {
		s.TooMany++
	}
	if k.look {
		s.Lookups++
		return
	}
	s.Calls++
	if note(&a.called); a.calls == 0 {
		a.first = at
	}
	a.calls++
	if !a.hasCharged(k) {
		return
	}
	s.Charges++
	a.charges++
	note(&a.charged)
	if len(a.money) < mostPlaces {
		a.money = append(a.money, k.amount)
	}
	if a.charges == 1 {
		a.reference = k.reference
	}
}

const (
	tooMany = 429
	success = 2
)

// hasCharged reports whether a call charged. If the log does not say so, the first success under a key charged,
// and every success without a key.
func (a *account) hasCharged(k call) bool {
	if k.charged != unsaid {
		return k.charged == yes
	}
	if k.status/100 != success || k.key != "" && a.paid[k.key] {
		return false
	}
	if a.paid == nil {
		a.paid = map[string]bool{}
	}
	a.paid[k.key] = true
	return true
}

// judge compares the sides of a job.
func (c *checker) judge(a *account) error {
	if a.id == "" {
		return nil // before the first one
	}
	b := a.book
	if a.charges > 1 {
		c.tell(a, ChargedTwice, a.charged, "the provider charged it %d times", a.charges)
	}
	switch {
	case b != nil:
	case len(a.called) > 0:
		c.tell(a, NotInBooks, a.called, "the provider saw %s of it%s, and the books don't have it", counted(a.calls, "call"), but(a.charges > 0, " and charged it"))
	case len(a.listed) > 0:
		c.tell(a, InNeither, a.listed, "it should be there, and neither the books nor the provider have it")
	}
	c.tally(a)
	if b == nil {
		return nil
	}
	if len(a.booked) > 1 {
		c.tell(a, TwoPlaces, a.booked, "the books have it %s", counted(int64(len(a.booked)), "time"))
	}
	if b.state == stateForgotten {
		return nil
	}
	if b.state == stateDone {
		c.judgeDone(a)
	} else {
		c.judgeOpen(a)
	}
	c.judgeAnswer(a)
	c.settle(a)
	return c.lineUp(a)
}

// tell records a finding about a job.
func (c *checker) tell(a *account, kind Kind, where []Place, format string, args ...any) {
	c.found(Finding{Kind: kind, Gateway: a.gateway, ID: a.id, Text: fmt.Sprintf(format, args...), Where: slices.Clone(where)})
}

// judgeDone checks a job that is done.
func (c *checker) judgeDone(a *account) {
	b := a.book
	switch {
	case a.charges == 0 && b.settledAs == stateDone:
		c.tell(a, DoneNotCharged, slices.Concat(a.booked, a.called), "%s settled it as done, and the provider did not charge it", somebody(b.settledBy))
	case a.calls == 0:
		c.tell(a, Lost, a.booked, "done in the books, and the provider saw no call of it")
	case a.charges == 0:
		c.tell(a, DoneNotCharged, slices.Concat(a.booked, a.called), "done in the books, and the provider did not charge it: it answered %s", a.answers())
	case a.charges == 1:
		c.judgeCharge(a)
	}
}

// judgeCharge compares the single charge of a job with its record.
func (c *checker) judgeCharge(a *account) {
	b, m := a.book, a.money[0]
	where := slices.Concat(a.booked, a.charged)
	switch {
	case !m.known || !b.amount.known:
	case m.currency != "" && b.amount.currency != "" && m.currency != b.amount.currency:
		c.tell(a, OtherCurrency, where, "charged in %s, and the books have %s", m.currency, b.amount.currency)
	case m.minor != b.amount.minor:
		c.tell(a, OtherAmount, where, "charged %d, and the books have %d, in minor units of %s", m.minor, b.amount.minor, m.currency)
	}
	if a.reference != "" && b.reference != "" && a.reference != b.reference && b.settledAs == "" && !b.erased {
		c.tell(a, OtherReference, where, "the provider calls the charge %q, and the books %q", a.reference, b.reference)
	}
}

// judgeOpen checks a job that is not done.
func (c *checker) judgeOpen(a *account) {
	b := a.book
	switch {
	case b.called == 0 && a.calls > 0 && b.state != stateInFlight: // a call is recorded when it ends
		c.tell(a, CalledNotSaid, slices.Concat(a.booked, a.called), "the provider saw %s of it%s, and the books say that it was never called: %s", counted(a.calls, "call"),
			but(a.charges > 0, " and charged it"), b.where())
	case a.charges == 0:
	case b.open():
		c.side(a.gateway).InDoubt++
	default:
		c.tell(a, ChargedNotDone, slices.Concat(a.booked, a.charged), "the provider charged it, and the books say %s", b.where())
	}
}

// open reports whether the record itself says that the outcome is unknown.
func (b *book) open() bool {
	switch b.state {
	case stateParked, stateDiscarded:
		return b.reason == "unknown_outcome" || b.reason == "exhausted" || b.reason == "paused" || b.reason == "rejected" || b.reason == "awaiting_approval"
	}
	return true // it will be called
}

// where returns the state, with the reason of a parked job.
func (b *book) where() string {
	if b.reason == "" {
		return b.state
	}
	return b.state + " as " + b.reason
}

// judgeAnswer looks for the recorded last answer among those that the provider gave.
func (c *checker) judgeAnswer(a *account) {
	b := a.book
	switch {
	case b.status == 0 || slices.Contains(a.statuses, b.status) || len(a.statuses) == mostPlaces:
	case len(a.statuses) > 0:
		c.tell(a, OtherAnswer, slices.Concat(a.booked, a.called), "the books have the answer %d, and the provider gave %s", b.status, a.answers())
	case b.state != stateDone: // that one is lost
		c.tell(a, OtherAnswer, a.booked, "the books have the answer %d, and the provider saw no call of it", b.status)
	}
}

// answers lists the provider's answers.
func (a *account) answers() string {
	texts := make([]string, len(a.statuses))
	for i, s := range a.statuses {
		if texts[i] = fmt.Sprint(s); s == 0 {
			texts[i] = "none"
		}
	}
	return strings.Join(texts, ", ")
}

func counted(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func but(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

func somebody(who string) string {
	if who == "" {
		return "somebody"
	}
	return who
}

// queued is a job's position in the order in which jobs should be called, and when it was called.
type queued struct {
	order, first int64
	id           string
	file         int
	line         int64
}

// lineUp adds a job to its queue: that of its gateway, batch, route, class and lane.
func (c *checker) lineUp(a *account) error {
	b := a.book
	if c.Slack < 0 || a.calls == 0 || b.replays > 0 {
		return nil
	}
	order := b.accepted
	if c.Ordered {
		order = int64(a.bookFile)<<40 | a.booked[0].Line
	}
	if order == 0 {
		return nil
	}
	c.result.Ordered++
	key := packed(nil)
	for _, part := range []string{a.gateway, b.batch, b.route, b.priority, b.lane} {
		key = append(append(key, part...), 0)
	}
	// The last job comes first, so that the calls of later jobs are known.
	value := packed(nil).int(order).int(a.first).text(a.id).int(int64(a.bookFile)).int(a.booked[0].Line)
	return c.queue.put(key.sorted(^order).sorted(a.first), value)
}

// judgeOrder walks each queue from its end, and looks for jobs that were called long after a later one.
func (c *checker) judgeOrder(ctx context.Context) error {
	var of []byte
	var behind, alike *queued // of the later jobs: the one called first; and the same of those whose order is unknown
	return c.queue.each(ctx, func(key, value []byte) error {
		const numbers = 2 * 8
		if group := key[:len(key)-numbers]; !bytes.Equal(group, of) {
			of, behind, alike = append(of[:0], group...), nil, nil
		}
		p := packed(value)
		q := &queued{order: p.takeInt(), first: p.takeInt(), id: p.takeText(), file: int(p.takeInt()), line: p.takeInt()}
		if alike != nil && alike.order != q.order {
			if behind == nil || alike.first < behind.first {
				behind = alike
			}
			alike = nil
		}
		if behind != nil && q.first-behind.first > c.Slack.Microseconds() {
			late := time.Duration(q.first-behind.first) * time.Microsecond
			gateway, _, _ := bytes.Cut(of, []byte{0})
			c.found(Finding{Kind: Order, Gateway: string(gateway), ID: q.id, Where: []Place{c.place(q.file, q.line), c.place(behind.file, behind.line)},
				Text: fmt.Sprintf("first called %s, %s after %s, which stands behind it", moment(q.first), late, behind.id)})
		}
		if alike == nil || q.first < alike.first {
			alike = q
		}
		return nil
	})
}
