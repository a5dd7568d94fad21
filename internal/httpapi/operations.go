package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
)

// Answers says how an operation answers.
type Answers int

// The kinds of answers.
const (
	Document Answers = iota // one JSON document, soon
	Long                    // one JSON document after a while, preceded by lines of progress if the caller accepts NDJSON
	Lines                   // a line for each item: NDJSON, or as LineWriter.As says
)

// Operation is something that operators see or do, beyond the API's own handlers.
type Operation struct {
	Method, Path string
	Answers      Answers
	// Act says that it changes something: it may be repeated with the same Idempotency-Key.
	Act bool
	// Need is the role needed. NeedOf, if not nil, returns what a request needs in addition; Undeclared:
	// nothing.
	Need   roles.Need
	NeedOf func(request any) roles.Need
	// Whole says that it concerns all gateways: a token for some gateways is refused.
	Whole bool
	// NotFound is the problem code for an error with code not_found. Empty: unknown_job.
	NotFound string
	// Request returns a pointer to an empty request. Read fills it from the path and the query or, unless body
	// is nil, from the path and the body.
	Request func() any
	Read    func(request any, path func(name string) string, query url.Values, body []byte) error
	// Do carries it out, and writes what precedes the answer. An answer with a method Unfinished() bool that
	// returns true is of an act that stopped halfway: a request with the same Idempotency-Key continues it.
	Do func(ctx context.Context, request any, out LineWriter) (any, error)
}

// LineWriter takes what precedes the answer of an operation.
type LineWriter struct {
	// Line writes a line of the answer or of its progress, and Remark a remark for people.
	Line   func(any) error
	Remark func(string)
	// As sets the media type of lines, and how to write them instead of as JSON. It must be called before the
	// first line.
	As func(media string, write func(io.Writer, any) error)
}

// operation returns the handler of an operation.
func (a *API) operation(o Operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		request, digest, wrong := a.requestOf(w, r, o)
		if wrong == nil {
			wrong = a.dearer(r, o, request)
		}
		if wrong == nil && o.Act && a.stopping.Load() {
			wrong = new(stopping())
		}
		if wrong != nil {
			wrong.answer(w)
			return
		}
		t := &teller{a: a, o: o, w: w, r: r, out: newPiecemeal(w, a.times.write)}
		t.asked = o.Answers == Long && strings.Contains(r.Header.Get("Accept"), typeNDJSON)
		if key := r.Header.Get("Idempotency-Key"); o.Act && key != "" {
			t.once(ofWhom(r, key), digest, request)
			return
		}
		t.finish(t.do(request))
	}
}

// dearer returns the problem if a request needs more than its operation's role; nil if not. Showing payloads is
// logged.
func (a *API) dearer(r *http.Request, o Operation, request any) *problem {
	if o.NeedOf == nil {
		return nil
	}
	who, _ := roles.Of(r.Context())
	need := o.NeedOf(request)
	if need == roles.Undeclared {
		return nil
	}
	if p := lacks(who, need); p != nil {
		return p
	}
	a.cfg.Log.Info("payloads, or a repair, were asked for", "route", r.Pattern, "path", clip(r.URL.Path), "who", who.Name, "remote", r.RemoteAddr)
	return nil
}

const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
)

// requestOf parses a request, and returns it as sent.
func (a *API) requestOf(w http.ResponseWriter, r *http.Request, o Operation) (request any, sent string, wrong *problem) {
	var text []byte
	if r.Method == http.MethodPost {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != typeJSON {
			drain(w, r)
			return nil, "", new(newProblem(codeMedia, "the Content-Type is not application/json", ""))
		}
		if text, wrong = body(r.Body, r.ContentLength); wrong != nil {
			return nil, "", wrong
		}
	}
	request = o.Request()
	if err := o.Read(request, r.PathValue, r.URL.Query(), text); err != nil {
		return nil, "", new(problemOf(err))
	}
	if text != nil {
		if err := producer.Once(text); err != nil {
			return nil, "", new(newProblem(codeRequest, "the body is not what this operation takes: "+err.Error(), "send one JSON object, with each key once"))
		}
	}
	return request, r.Method + " " + r.URL.Path + "\n" + string(text), nil
}

// teller answers one request for an operation.
type teller struct {
	a     *API
	o     Operation
	w     http.ResponseWriter
	r     *http.Request
	asked bool // the caller wants progress

	mu    sync.Mutex
	out   *piecemeal
	begun bool
	media string
	write func(io.Writer, any) error
}

const (
	beatOf      = 10 * time.Second // how often a long act without progress sends a sign of life
	pieceOf     = 32 << 10         // bytes of lines sent together
	documentMax = 30 * time.Second // for an act that answers soon
)

// errStopping ends long operations when the dispatcher stops.
var errStopping = &job.Error{Code: job.CodeUnavailable, Message: "the dispatcher that did this is stopping", Hint: "do the same again at another one, or when it is back: it goes on with what is left"}

// errTakenOut ends long operations of a token that was removed or changed.
var errTakenOut = &withdrawn{&job.Error{Code: job.CodeUsage, Message: "the token or login was taken out or changed while this was done", Hint: "what was done stays done; do the rest with another token"}}

// withdrawn is an error with the problem code of a token that is no longer valid.
type withdrawn struct{ error }

func (e *withdrawn) Unwrap() error { return e.error }

// ProblemCode returns the problem code.
func (e *withdrawn) ProblemCode() string { return string(codeToken) }

// lookAgain is how often a long operation checks that its sender still has access.
const lookAgain = time.Second

// watch ends an operation when its sender's token is removed or changed. A token that expires does not end it: an
// act may take hours.
func (t *teller) watch(ctx context.Context, stop context.CancelCauseFunc) {
	out, is := ctx.Value(takenOut{}).(func() bool)
	if !is {
		return
	}
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			if out() {
				stop(errTakenOut)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// do carries out the operation and returns its answer.
func (t *teller) do(request any) (any, error) {
	ctx := t.r.Context()
	var cancel func()
	switch {
	case t.o.Answers != Document:
		_ = t.out.rc.SetReadDeadline(time.Time{}) // not supported by a test recorder
		_ = t.out.rc.SetWriteDeadline(time.Time{})
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		unless := context.AfterFunc(t.a.over, func() { stop(errStopping) })
		go t.watch(ctx, stop)
		cancel = func() { unless(); stop(nil) }
	case t.o.Act: // an act is completed even if the caller has gone: a request with the same key gets its result
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), documentMax)
	default:
		ctx, cancel = context.WithTimeout(ctx, lookTime)
	}
	defer cancel()
	stop := t.beat()
	defer stop()
	v, err := t.o.Do(ctx, request, LineWriter{Line: t.line, Remark: func(text string) {
		if t.o.Answers == Lines {
			_ = t.line(map[string]string{"remark": text})
		}
	}, As: func(media string, write func(io.Writer, any) error) { t.media, t.write = media, write }})
	if errors.Is(err, context.Canceled) && context.Cause(ctx) == errTakenOut {
		err = errTakenOut
	}
	return v, err
}

// beat sends signs of life of a long act, until it is stopped.
func (t *teller) beat() (stop func()) {
	if !t.asked {
		return func() {}
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		again := time.NewTicker(beatOf)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				_ = t.send([]byte("{}\n"), 0) // if the caller has gone, the request has ended
			case <-over:
				return
			}
		}
	}()
	return func() { close(over); <-ended }
}

func (t *teller) line(v any) error {
	if t.o.Answers == Long {
		if !t.asked {
			return nil
		}
		v = map[string]any{"progress": v}
	}
	var text bytes.Buffer
	if t.write != nil {
		if err := t.write(&text, v); err != nil {
			return err
		}
		return t.send(text.Bytes(), pieceOf)
	}
	document, err := encode(v)
	if err != nil {
		return err
	}
	most := pieceOf
	if t.o.Answers == Long {
		most = 0
	}
	return t.send(document, most)
}

// send sends the text collected, once it is longer than most.
func (t *teller) send(text []byte, most int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun {
		t.begun = true
		media := typeNDJSON
		if t.media != "" {
			media = t.media
		}
		t.w.Header().Set("Content-Type", media)
		t.w.Header().Set("Cache-Control", "no-store")
	}
	t.out.text = append(t.out.text, text...)
	if len(t.out.text) <= most {
		return nil
	}
	return t.out.send()
}

// finish sends the answer of an operation, or its error.
func (t *teller) finish(v any, err error) {
	if err != nil {
		t.refuse(t.a.operationProblem(t.r, t.o, err))
		return
	}
	text, err := encode(v)
	if err != nil {
		t.refuse(t.a.problemOf(t.r, err))
		return
	}
	t.answer(text)
}

// answer sends the document, or the remaining lines.
func (t *teller) answer(text []byte) {
	switch {
	case t.o.Answers == Lines:
		_ = t.send(nil, -1)
	case t.asked:
		_ = t.send(append(append([]byte(`{"answer":`), bytes.TrimSuffix(text, []byte("\n"))...), "}\n"...), 0)
	default:
		t.w.Header().Set("Content-Type", typeJSON)
		t.w.Header().Set("Cache-Control", "no-store")
		_, _ = t.w.Write(text)
	}
}

// refuse sends a problem: as the whole answer or, after lines, as the last one.
func (t *teller) refuse(p problem) {
	t.mu.Lock()
	begun := t.begun
	t.mu.Unlock()
	if !begun {
		p.answer(t.w)
		return
	}
	if t.write != nil { // a text other than JSON is cut off: a part must not pass for the whole
		_ = t.send(nil, -1)
		panic(http.ErrAbortHandler)
	}
	text, _ := encode(map[string]problem{"problem": p}) // it has only texts and numbers
	_ = t.send(text, 0)
}

// encode writes JSON on one line. It does not escape <, > and &, so that payloads stay unchanged.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// operationProblem returns an error in the words of the command line. A refusal is the caller's matter, and no fault
// of the dispatcher.
func (a *API) operationProblem(r *http.Request, o Operation, err error) problem {
	if errors.Is(err, context.Canceled) && a.stopping.Load() && r.Context().Err() == nil {
		err = errStopping
	}
	p := o.problemOf(r, err)
	if p.Code == codeNotPossible {
		a.cfg.Log.Info("an operation was refused", "method", r.Method, "route", r.Pattern, "error", err)
	}
	a.logFault(r, p, err)
	return p
}

func (o Operation) problemOf(r *http.Request, err error) problem {
	p := tellable(r, err)
	e, is := errors.AsType[*job.Error](redisdb.Coded(err))
	if damaged, found := errors.AsType[*redisdb.DamagedError](err); !is && found {
		p.Detail, p.Hint = err.Error(), "look at these keys; nothing of ours writes them so: "+damaged.Keys[0].Name
	}
	if !is || r.Context().Err() != nil {
		return p
	}
	c := codes[e.Code]
	named, has := errors.AsType[interface {
		error
		ProblemCode() string
	}](err)
	switch {
	case has:
		c = code(named.ProblemCode())
	case e.Code == job.CodeNotFound && o.NotFound != "":
		c = code(o.NotFound)
	case e.Code == job.CodeFailed:
		c = codeNotPossible
	}
	text := e.Error()
	if e.Code == job.CodeUnavailable {
		text = e.Message // the address of Redis is not shown
	}
	told := newProblem(c, text, e.Hint)
	told.Kind = e.Code
	return told
}
