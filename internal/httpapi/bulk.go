package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/producer"
)

// chunk is lines of a body in their order, the jobs of which go through the door together.
type chunk struct {
	lines []line
	jobs  []job.Job
	bytes int
	held  int64 // of the budget of bodies, until it is answered
}

// line is a job, or what is wrong with it.
type line struct {
	number int
	at     int // place in jobs; only where there is no problem
	wrong  *problem
}

func (c *chunk) full() bool {
	return len(c.lines) >= admission.ChunkJobs || c.bytes >= admission.ChunkBytes
}

// bulk is a POST of many jobs under way.
//
//	body → feeder ──chunks──→ handler → door
//	                             └─ a line for each job → spool → writer → caller
type bulk struct {
	a     *API
	r     *http.Request
	w     http.ResponseWriter
	rc    *http.ResponseController
	order order
	out   *spool
	sent  chan struct{} // closed when all is written; nil until the answer begins
	ended atomic.Bool   // the body has: from here on the caller has to read
	no    *problem      // what every job hears from here on; nil: they go through the door
	told  int           // the last line that was answered
	rest  []byte        // lines of the answer that the spool had no room for
}

// many takes the jobs of a stream in, in their order and in chunks as enqueue does. The answer begins with that of the first chunk.
func (a *API) many(w http.ResponseWriter, r *http.Request, o order) {
	if !a.bodies.take(manyLeast) {
		drain(w, r)
		crowded().answer(w)
		return
	}
	defer a.bodies.give(manyLeast)
	b := &bulk{a: a, r: r, w: w, rc: http.NewResponseController(w), order: o, out: newSpool(&a.spools, a.times.unread)}
	_ = b.rc.EnableFullDuplex() // without it no answer can begin before the body has ended
	defer b.out.drop()
	err := b.flow()
	p, refused := errors.AsType[*problem](err)
	switch {
	case b.sent != nil && refused:
		p.Line = b.told + 1
		b.finish(b.last(p))
	case b.sent != nil:
		b.finish(err)
	case refused:
		p.answer(w)
	case err != nil:
		unreadable(err).answer(w)
	default: // there was no line
		b.begin(http.StatusOK)
		b.finish(nil)
	}
}

// last puts a problem behind what waits, as the answer's last line.
func (b *bulk) last(p *problem) error {
	text, err := json.Marshal(p)
	b.rest = append(append(b.rest, text...), '\n')
	return err
}

// finish waits until the answer is written. The caller sees that one which an error cut short is not whole.
func (b *bulk) finish(err error) {
	b.out.end(b.rest)
	b.ended.Store(true)
	b.moreToRead() // for a write that waits already
	<-b.sent
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// moreToCome gives the caller time to send more. Until the body has ended he need not read: so there is time to write for as long as he sends.
func (b *bulk) moreToCome() {
	_ = b.rc.SetReadDeadline(time.Now().Add(b.a.times.read)) // a recorder of a test has none
	b.moreToRead()
}

// moreToRead gives the caller time to read more.
func (b *bulk) moreToRead() {
	within := b.a.times.write
	if !b.ended.Load() {
		within += b.a.times.read
	}
	_ = b.rc.SetWriteDeadline(time.Now().Add(within))
}

// unreadable is what a caller hears of a body that is not NDJSON, or broke off.
func unreadable(err error) problem {
	if e, ok := errors.AsType[*job.Error](err); ok && e.Code == job.CodeUsage {
		return newProblem(codeRequest, e.Message, "send NDJSON as UTF-8, not compressed")
	}
	return *brokenOff(err)
}

// flow reads and admits until the body ends.
func (b *bulk) flow() error {
	ctx, stop := context.WithCancel(b.r.Context())
	defer stop()
	chunks := make(chan chunk)
	var broke, err error
	go func() { broke = b.feed(ctx, chunks); close(chunks) }()
	enough := time.AfterFunc(math.MaxInt64, stop)
	defer enough.Stop()
	for c := range chunks {
		if err == nil { // else what is sent is read for a while, so that the caller sees the answer
			if err = b.admit(ctx, c); err != nil {
				enough.Reset(b.drainTime())
			}
		}
		b.a.bodies.give(c.held)
	}
	if err != nil || broke == nil {
		return err
	}
	if _, refused := errors.AsType[*problem](broke); refused {
		drain(b.w, b.r)
	}
	return broke
}

// drainTime is how long what nobody wants is read. Who does not read has to send all of it before he does.
func (b *bulk) drainTime() time.Duration {
	if b.rest != nil {
		return b.a.times.write
	}
	return drainTime
}

// feed cuts the body into chunks.
func (b *bulk) feed(ctx context.Context, out chan<- chunk) error {
	body := &held{r: patient{b}, of: &b.a.bodies}
	defer body.drop()
	in, err := producer.New(body, b.order.read(b.a.known(b.r)))
	if err != nil {
		return err
	}
	var c chunk
	for {
		l, err := in.Next()
		if err == nil {
			c.add(l, b.order)
		}
		if len(c.lines) > 0 && (err == io.EOF || c.full()) {
			c.held = body.hand()
			select {
			case out <- c:
				c = chunk{}
			case <-ctx.Done():
				b.a.bodies.give(c.held)
				return ctx.Err()
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *chunk) add(l producer.Line, o order) {
	entry := line{number: l.Number, at: len(c.jobs)}
	if l.Err == nil {
		l.Err = o.check(l.Job)
	}
	switch {
	case l.Rest != nil:
		entry.wrong = new(newProblem(codeLarge, l.Err.Error(), ""))
	case l.Err != nil:
		entry.wrong = new(newProblem(codeInvalid, l.Err.Error(), ""))
		entry.wrong.ID = l.Job.ID
	default:
		c.jobs = append(c.jobs, l.Job)
	}
	c.lines = append(c.lines, entry)
	c.bytes += len(l.Raw)
}

// patient reads the body, with time for every piece of it.
type patient struct{ b *bulk }

// Read implements io.Reader.
func (p patient) Read(buf []byte) (int, error) {
	p.b.moreToCome()
	n, err := p.b.r.Body.Read(buf)
	if err == io.EOF {
		_ = p.b.rc.SetReadDeadline(time.Time{}) // net/http goes on reading, for the caller's end: he may take his time for the answer
	}
	return n, err
}

// admit puts a chunk through the door and answers its lines. Once one job has found no room, or Redis was away, no later one
// is tried: it would overtake.
func (b *bulk) admit(ctx context.Context, c chunk) error {
	if b.no == nil && b.a.stopping.Load() {
		b.no = new(stopping())
	}
	if b.no == nil && !isStillIn(b.r) {
		b.no = new(tokenEnded())
	}
	var answers []admission.Answer
	if b.no == nil && len(c.jobs) > 0 {
		var err error
		if answers, err = b.a.bulk(ctx, b.order, c.jobs); err != nil {
			b.no = new(b.a.problemOf(b.r, err))
		}
	}
	says, in := b.says(c, answers)
	if b.sent == nil {
		rateLimit(ctx, b.w.Header(), b.order.to, roomOf(answers))
		if in == 0 {
			return whole(says)
		}
		b.begin(in)
	}
	b.told = c.lines[len(c.lines)-1].number
	return b.tell(says)
}

// bulk takes jobs in, a few callers' at a time: the workers need Redis too.
func (a *API) bulk(ctx context.Context, o order, jobs []job.Job) ([]admission.Answer, error) {
	select {
	case a.bulks <- struct{}{}:
		defer func() { <-a.bulks }()
		begun := time.Now()
		answers, err := a.cfg.Door.Admit(ctx, o.name, jobs, o.mode)
		a.accepted(ctx, jobs, answers, begun)
		return answers, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// says returns what each line of a chunk is answered: taken or problem. in is 202 if a job was taken in, 200 if one is known, else 0.
func (b *bulk) says(c chunk, answers []admission.Answer) (says []any, in int) {
	now := time.Now()
	for _, l := range c.lines {
		t, p := taken{}, l.wrong
		if p == nil {
			t, p = b.outcome(c.jobs[l.at], answers, l.at, now)
		}
		if p != nil {
			p.Line = l.number
			says = append(says, *p)
			continue
		}
		t.Line = l.number
		in = max(in, t.Status)
		says = append(says, t)
	}
	return says, in
}

func (b *bulk) outcome(j job.Job, answers []admission.Answer, at int, now time.Time) (taken, *problem) {
	if b.no != nil && (at >= len(answers) || answers[at].Outcome == "" && answers[at].Err == nil) {
		p := *b.no
		p.ID = j.ID
		return taken{}, &p
	}
	t, p := outcome(j, visible(b.r, answers[at]), now)
	if p != nil && p.Code == codeFull {
		b.no = p
	}
	return t, p
}

// whole is the answer where nothing of the first chunk is in.
func whole(says []any) *problem {
	var lines []problem
	for _, s := range says {
		if p, ok := s.(problem); ok {
			lines = append(lines, p)
		}
	}
	p := lines[0]
	for _, other := range lines {
		if other.Status > p.Status {
			p = other
		}
	}
	p.Lines, p.Line, p.ID = lines, 0, ""
	return &p
}

func roomOf(answers []admission.Answer) *job.Room {
	for _, a := range answers {
		if a.Room != nil {
			return a.Room
		}
	}
	return nil
}

// tell adds lines to the answer.
func (b *bulk) tell(says []any) error {
	var text []byte
	for _, s := range says {
		one, err := json.Marshal(s)
		if err != nil {
			return err
		}
		text = append(append(text, one...), '\n')
	}
	_, err := b.out.Write(text)
	if errors.Is(err, errUnread) {
		b.rest = text
		return new(newProblem(codeSlow, "the answer is not read: from this line on nothing was looked at", "read the answer while you send, or send fewer jobs at once; send the rest again"))
	}
	return err
}

// begin starts the answer, and a writer that sends what is in the spool.
func (b *bulk) begin(status int) {
	b.w.Header().Set("Content-Type", "application/x-ndjson")
	b.w.Header().Set("Cache-Control", "no-store")
	b.w.WriteHeader(status)
	b.sent = make(chan struct{})
	go func() {
		defer close(b.sent)
		if err := b.send(); err != nil {
			b.out.leave()
		}
	}()
}

func (b *bulk) send() error {
	buf := make([]byte, 32<<10)
	for {
		n, err := b.out.Read(buf)
		if err == io.EOF {
			return b.rc.Flush()
		}
		if err != nil {
			return err
		}
		b.moreToRead()
		if _, err := b.w.Write(buf[:n]); err != nil {
			return err
		}
		if b.out.empty() {
			if err := b.rc.Flush(); err != nil {
				return err
			}
		}
	}
}
