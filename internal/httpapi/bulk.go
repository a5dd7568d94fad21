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

// chunk is consecutive lines of a body, whose jobs are admitted together.
type chunk struct {
	lines []line
	jobs  []job.Job
	bytes int
	held  int64 // reserved from the budget of bodies until it is answered
}

// line is a job, or the problem with it.
type line struct {
	number int
	at     int // index in jobs; valid only without a problem
	wrong  *problem
}

func (c *chunk) full() bool {
	return len(c.lines) >= admission.ChunkJobs || c.bytes >= admission.ChunkBytes
}

// bulk is a POST of many jobs in progress.
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
	sent  chan struct{} // closed when everything is written; nil until the answer begins
	ended atomic.Bool   // the body has ended: from now on the caller has to read
	no    *problem      // the answer for all further jobs; nil: they are admitted
	told  int           // the last line answered
	rest  []byte        // lines of the answer for which the spool had no room
}

// many admits the jobs of a stream, in order and in chunks, like enqueue. The answer begins after the first
// chunk.
func (a *API) many(w http.ResponseWriter, r *http.Request, o order) {
	if !a.bodies.take(manyLeast) {
		drain(w, r)
		crowded().answer(w)
		return
	}
	defer a.bodies.give(manyLeast)
	b := &bulk{a: a, r: r, w: w, rc: http.NewResponseController(w), order: o, out: newSpool(&a.spools, a.times.unread)}
	_ = b.rc.EnableFullDuplex() // without it, no answer can begin before the body has ended
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

// last appends a problem to the answer, as its last line.
func (b *bulk) last(p *problem) error {
	text, err := json.Marshal(p)
	b.rest = append(append(b.rest, text...), '\n')
	return err
}

// finish waits until the answer is written. If an error cut the answer short, the caller can see that it is
// incomplete.
func (b *bulk) finish(err error) {
	b.out.end(b.rest)
	b.ended.Store(true)
	b.moreToRead() // for a write that is already waiting
	<-b.sent
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// moreToCome extends the caller's time to send more. The caller need not read before the body has ended, so the
// time to write is extended as well.
func (b *bulk) moreToCome() {
	_ = b.rc.SetReadDeadline(time.Now().Add(b.a.times.read)) // not supported by a test recorder
	b.moreToRead()
}

// moreToRead extends the caller's time to read.
func (b *bulk) moreToRead() {
	within := b.a.times.write
	if !b.ended.Load() {
		within += b.a.times.read
	}
	_ = b.rc.SetWriteDeadline(time.Now().Add(within))
}

// unreadable returns the problem for a body that is not NDJSON, or broke off.
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
		if err == nil { // otherwise the rest is read for a while, so that the caller sees the answer
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

// drainTime returns how long an unwanted rest is read. A caller that does not read the answer yet has to send
// all of it first.
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

// patient reads the body, and extends the time with every piece.
type patient struct{ b *bulk }

// Read implements io.Reader.
func (p patient) Read(buf []byte) (int, error) {
	p.b.moreToCome()
	n, err := p.b.r.Body.Read(buf)
	if err == io.EOF {
		_ = p.b.rc.SetReadDeadline(time.Time{}) // net/http keeps reading to detect the caller's end: the answer may take its time
	}
	return n, err
}

// admit admits a chunk and answers its lines. Once a job has found no room, or Redis was unreachable, no later
// one is tried, because it would overtake.
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

// bulk admits jobs for a few callers at a time, because the workers need Redis, too.
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

// says returns the answer for each line of a chunk: taken or problem. in is 202 if a job was accepted, 200 if
// one is known, else 0.
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

// whole returns the answer if nothing of the first chunk was accepted.
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

// begin starts the answer, and a writer that sends the spool's content.
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
