package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// receiptLifetime is how long the reply to an offer is stored: longer than any caller retries.
const receiptLifetime = 10 * time.Minute

// NoRetry means "never" where a time until there is room is given.
const NoRetry time.Duration = -1

// Offer prepares a chunk of jobs without Redis; jobs must not be changed. The offer admits them in one step, in
// order: each is enqueued, parked, refused, or already known. mode is "park", "wait" or "fail". Keep chunks to a few
// hundred jobs, because the script blocks Redis. After an error, either none or all of the chunk was accepted:
// repeated with the same ticket, the offer gets the lost reply.
func (b *Books) Offer(jobs []job.Newcomer) (job.Offer, error) {
	c, err := b.chunk(jobs)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, ticket job.Ticket, mode string) ([]job.Admittance, job.Room, error) {
		return b.put(ctx, c, ticket, mode)
	}, nil
}

// put offers a chunk to accept.lua.
func (b *Books) put(ctx context.Context, c *chunk, ticket job.Ticket, mode string) (answers []job.Admittance, room job.Room, err error) {
	check, err := b.bucketArgs(ctx)
	if err != nil {
		return nil, room, err
	}
	if b.cfg.Registers && !b.registered.Load() {
		if err := redisdb.Register(ctx, b.c, b.cfg.Gateway); err != nil {
			return nil, room, err
		}
		b.registered.Store(true)
	}
	k := b.keys
	keys := []string{k.Admission(), k.Pending(), k.Parked(string(job.Rejected)), k.Counters(), k.Scheduled(), k.Costs(), k.Receipt(ticket.Sequence), k.Receipt(cmp.Or(ticket.Behind.Sequence, ticket.Sequence))}
	if len(c.jobs) > 0 {
		keys = append(keys, k.Job(c.jobs[0].Job.ID))
	}
	if c.timed {
		keys = append(keys, k.Moments())
	}
	if len(b.cfg.Approval.BatchOver) > 0 {
		mode += b.approvals(ctx)
	}
	args := make([]any, 0, 64)
	args = append(args, b.cfg.NowMicros.Now(), mode, redisdb.Flag(b.cfg.InOrder)+b.passing, b.cfg.Gateway, redisdb.Wake, c.batch, len(c.jobs), k.JobPrefix(), k.TaskPrefix(), b.bound(),
		ticket.Number, receiptLifetime.Milliseconds(), ticket.Behind.Number, ticket.Until, b.sharing, c.alike, c.text)
	args = append(append(args, c.forms...), check...)
	reply, err := b.accept.Run(ctx, b.c, keys, args...).Text()
	if err != nil {
		return nil, room, redisdb.Leaving(b.cfg.Gateway, err)
	}
	reply, tooMany := strings.CutPrefix(reply, "!")
	reply, tooLong := strings.CutPrefix(reply, "#")
	if answers, room, err = answersOf(reply, len(c.jobs)); err == nil {
		if tooMany {
			room.Parked.Jobs = b.cfg.Parked.Jobs
		}
		if tooLong {
			room.Parked.Bytes = b.cfg.Parked.Bytes
		}
		if b.cfg.Box != nil {
			err = b.recognise(ctx, c.jobs, answers)
		}
	}
	return answers, room, err
}

func (b *Books) moneyOf(n job.Newcomer) string {
	if n.Money != "" {
		return n.Money
	}
	return b.cfg.Money(n.Job.Payload)
}

// admittances are the answers of accept.lua; digit n is the n-th, from 1.
var admittances = []job.Admittance{job.Enqueued, job.ParkedNow, job.Duplicate, job.Conflict, job.Full, job.KeyTaken, job.Damaged, job.Elsewhere}

// answersOf decodes the reply of accept.lua for n jobs.
func answersOf(reply string, n int) ([]job.Admittance, job.Room, error) {
	words := strings.Split(reply, " ")
	digits := words[len(words)-1]
	numbers := make([]int64, len(words)-1)
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return nil, job.Room{}, redisdb.BadReply("accept.lua", reply)
		}
	}
	if len(numbers) < 3 || numbers[2] != int64(len(numbers)-3) {
		return nil, job.Room{}, redisdb.BadReply("accept.lua", reply)
	}
	answers, err := coded("accept.lua", digits, n, admittances)
	return answers, job.Room{Retry: retryOf(numbers[0]), Reset: time.Duration(numbers[1]) * time.Microsecond, Left: numbers[3:]}, err
}

// coded decodes a script's answers for n jobs: a digit each, an index into all from 1.
func coded(script, digits string, n int, all []job.Admittance) ([]job.Admittance, error) {
	if len(digits) != n {
		return nil, redisdb.BadReply(script, digits)
	}
	answers := make([]job.Admittance, n)
	for i := range answers {
		code := int(digits[i]) - '1'
		if code < 0 || code >= len(all) {
			return nil, redisdb.BadReply(script, digits)
		}
		answers[i] = all[code]
	}
	return answers, nil
}

// retryOf converts a script's time until there is room.
func retryOf(us int64) time.Duration {
	if us < 0 {
		return NoRetry
	}
	return time.Duration(us) * time.Microsecond
}

func payload(j job.Job) []byte {
	if len(j.Payload) == 0 {
		return []byte("{}")
	}
	return j.Payload
}

// chunk is an offer of jobs in the form that accept.lua takes. With parking, it is made while Redis still works
// on the previous one.
type chunk struct {
	jobs  []job.Newcomer
	batch string // stored once: most jobs of a chunk have the same
	timed bool   // a job has a time, maybe one that has passed
	alike string // the jobs' sum, if accept.lua may note them together, or empty
	forms []any  // templates of the tasks' messages
	text  []byte // all jobs in one argument, which is cheaper for Redis than several arguments each
}

// entryBytes is the approximate size of a job in a chunk's text, without its payload.
const entryBytes = 96

// chunk encodes and seals jobs.
func (b *Books) chunk(jobs []job.Newcomer) (*chunk, error) {
	c, size := &chunk{jobs: jobs}, 0
	if len(jobs) > 0 {
		c.batch = jobs[0].Job.Batch
	}
	for i := range jobs {
		size += entryBytes + len(jobs[i].Job.Payload)
	}
	c.text = make([]byte, 0, size)
	all := tally{ids: make(map[string]struct{}, len(jobs))}
	for i := range jobs {
		j := &jobs[i].Job
		c.timed = c.timed || !j.At.IsZero()
		stored, err := b.cfg.Box.Seal(j.ID, payload(*j))
		if err != nil {
			return nil, err
		}
		money, traits := b.moneyOf(jobs[i]), b.traits(j, c.batch)
		if c.text, err = appendEntry(c.text, j.ID, b.cfg.Box.Digest(j.ID, jobs[i].Digest), money, traits, stored); err != nil {
			return nil, err
		}
		all.add(j.ID, money, traits, len(stored))
	}
	c.alike = all.text()
	var err error
	c.forms, err = b.forms(len(jobs), func(i int) (string, int64) { return jobs[i].Job.ID, 1 })
	return c, err
}

// appendEntry appends a job to the text of a chunk, in the form that accept.lua reads: the lengths of all
// parts, then the parts. A line of a billing file never exceeds what the lengths can hold.
func appendEntry(text []byte, id, digest, money, traits string, payload []byte) ([]byte, error) {
	if len(id) > math.MaxUint8 || max(len(digest), len(money), len(traits)) >= 1<<24 || len(payload) > math.MaxUint32 {
		return nil, fmt.Errorf("job %.64q is too large: its id, its batch, its currency or its payload", id)
	}
	text = append(text, byte(len(id)))
	for _, s := range [...]string{digest, money, traits} {
		text = append(text, byte(len(s)>>16), byte(len(s)>>8), byte(len(s)))
	}
	text = binary.BigEndian.AppendUint32(text, uint32(len(payload))) //nolint:gosec // looked at above
	text = append(append(append(append(text, id...), digest...), money...), traits...)
	return append(text, payload...), nil
}

// forms returns the templates of the messages of n tasks, in the form that forms_load in record.lua reads. of returns the job
// and generation of a task.
func (b *Books) forms(n int, of func(i int) (id string, generation int64)) ([]any, error) {
	type size struct {
		id         int
		generation int64
	}
	forms, known := []any{0}, map[size]bool{}
	for i := range n {
		id, generation := of(i)
		if s := (size{len(id), generation}); !known[s] {
			known[s] = true
			taskID, _, msg, err := b.Task(id, generation)
			if err != nil {
				return nil, err
			}
			before, behind, found := bytes.Cut(msg, []byte(taskID))
			if !found {
				return nil, fmt.Errorf("the message of the task of job %s does not have the task's id", id)
			}
			forms = append(forms, len(taskID), before, behind)
		}
	}
	forms[0] = len(known)
	return forms, nil
}

// traits returns the rarely used properties of a job, in the form that accept.lua reads.
func (b *Books) traits(j *job.Job, batch string) string {
	if j.Cost <= 1 && j.At.IsZero() && j.Expires.IsZero() && j.Batch == batch && j.Route == "" && j.Priority == "" && j.Lane == "" && !b.cfg.OwnLanes {
		return ""
	}
	own := ""
	if b.cfg.OwnLanes {
		own = "="
	}
	return fmt.Sprintf("%d %d %d %s %s %s%d %s %s", max(j.Cost, 1), record.Micros(j.At), record.Micros(j.Expires), j.Route, j.Priority, own, len(j.Lane), j.Lane, j.Batch)
}

// tally adds up the jobs of a chunk, which saves accept.lua reading the amount of each one. It is void if a job
// has traits or comes twice, or if an amount needs more care.
type tally struct {
	ids    map[string]struct{}
	void   bool
	bytes  int
	unread int
	money  []moneySum // by currency; there are few
}

// moneySum is low + high * 10^9 minor units, as in books.lua.
type moneySum struct {
	currency  string
	low, high int64
}

// add adds a job; bytes is the length of its payload as it is stored.
func (s *tally) add(id, money, traits string, bytes int) {
	if _, known := s.ids[id]; known || traits != "" {
		s.void = true
	}
	if s.void {
		return
	}
	s.ids[id] = struct{}{}
	s.bytes += bytes
	s.pay(money)
}

// pay adds money, in the form of a record.
func (s *tally) pay(money string) {
	if money == "" {
		return
	}
	amount, currency, found := strings.Cut(money, " ")
	digits := strings.TrimPrefix(amount, "-")
	if !found || !job.Digits(digits) {
		s.unread++
		return
	}
	if len(digits) > 18 || strings.Trim(currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		s.void = true
		return
	}
	minor, _ := strconv.ParseInt(amount, 10, 64)
	of := s.of(currency)
	of.low, of.high = of.low+minor%1e9, of.high+minor/1e9
}

// of returns the sum of one currency.
func (s *tally) of(currency string) *moneySum {
	for i := range s.money {
		if s.money[i].currency == currency {
			return &s.money[i]
		}
	}
	s.money = append(s.money, moneySum{currency: currency})
	return &s.money[len(s.money)-1]
}

// text returns the sum in the form that books_join_all of books.lua reads.
func (s *tally) text() string {
	if s.void {
		return ""
	}
	text := strconv.Itoa(s.bytes) + " " + strconv.Itoa(s.unread)
	for _, m := range s.money {
		text += " " + m.currency + "=" + strconv.FormatInt(m.low, 10) + "," + strconv.FormatInt(m.high, 10)
	}
	return text
}

// Readmit admits parked jobs again, in order. Jobs that find no room stay parked (Full); jobs no longer parked
// as given are Gone. retry is when the first job without room would find some: zero if unknown, NoRetry if
// never.
func (b *Books) Readmit(ctx context.Context, jobs []job.Return) (answers []job.Admittance, retry time.Duration, err error) {
	forms, err := b.forms(len(jobs), func(i int) (string, int64) { return jobs[i].ID, jobs[i].Generation + 1 })
	if err != nil {
		return nil, 0, err
	}
	kinds, text, err := returns(jobs)
	if err != nil {
		return nil, 0, err
	}
	check, err := b.bucketArgs(ctx)
	if err != nil {
		return nil, 0, err
	}
	k := b.keys
	keys := []string{k.Admission(), k.Pending(), k.Counters(), k.Scheduled(), k.Costs(), k.Acts(), k.Nobodys()}
	args := make([]any, 0, 64)
	args = append(args, b.cfg.NowMicros.Now(), b.cfg.Gateway, redisdb.Wake, b.actPlace(), k.JobPrefix(), k.TaskPrefix(), b.sharing, text)
	args = append(append(append(args, forms...), kinds...), check...)
	run := b.readmit.Itself
	if _, err := strconv.Atoi(b.actPlace()); err == nil { // an operator's action
		run = b.readmit.Act
	}
	reply, err := run(ctx, b.c, keys, args...).Text()
	if err != nil {
		return nil, 0, err
	}
	return readmitted(reply, len(jobs))
}

// kind is what many jobs of a chunk have in common.
type kind struct {
	generation int64
	reason     job.Reason
	key        job.KeyChange
	class      job.ClassChange
	agreed     string
}

// returns encodes jobs in the form that readmit.lua reads: the number of kinds, each kind, and all jobs in one
// text.
func returns(jobs []job.Return) (kinds []any, text []byte, err error) {
	kinds, text = []any{0}, make([]byte, 0, 32*len(jobs))
	known := map[kind]int{}
	for _, r := range jobs {
		k := kind{r.Generation, r.Reason, r.Key, r.Class, ""}
		if !r.Agreed.IsZero() {
			k.agreed = strconv.FormatInt(record.Micros(r.Agreed), 10)
		}
		n, is := known[k]
		if !is {
			n = len(known) + 1
			known[k] = n
			kinds = append(kinds, strconv.FormatInt(r.Generation, 10), string(r.Reason), string(r.Key), string(r.Class), k.agreed)
		}
		if n > math.MaxUint16 || len(r.ID) > math.MaxUint16 {
			return nil, nil, fmt.Errorf("job %.64q can't be readmitted: its id is too long, or there are too many at once", r.ID)
		}
		text = binary.BigEndian.AppendUint16(text, uint16(n))         //nolint:gosec // looked at above
		text = binary.BigEndian.AppendUint16(text, uint16(len(r.ID))) //nolint:gosec // looked at above
		text = append(text, r.ID...)
	}
	kinds[0] = len(known)
	return kinds, text, nil
}

// readmittances are the answers of readmit.lua; digit n is the n-th, from 1.
var readmittances = []job.Admittance{job.Enqueued, job.Full, job.Gone}

// readmitted decodes the reply of readmit.lua for n jobs.
func readmitted(reply string, n int) ([]job.Admittance, time.Duration, error) {
	number, digits, _ := strings.Cut(reply, " ")
	us, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return nil, 0, redisdb.BadReply("readmit.lua", reply)
	}
	answers, err := coded("readmit.lua", digits, n, readmittances)
	return answers, retryOf(us), err
}
