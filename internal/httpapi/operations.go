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
	"spillway/internal/redisdb"
	"spillway/internal/roles"
)

// Answers says how an operation answers.
type Answers int

// The kinds of answers.
const (
	Document Answers = iota // one JSON document, soon
	Long                    // one JSON document that takes its time, with lines of progress before it for who accepts NDJSON
	Lines                   // a line for each item: NDJSON, or what LineWriter.As says
)

// Operation is something that operators see or do, beside what the API has handlers for.
type Operation struct {
	Method, Path string
	Answers      Answers
	// Act says that it changes something: it may come again with the same Idempotency-Key.
	Act bool
	// Need is what it needs of who asks, and NeedOf, unless it is nil, what a request needs of him besides; Undeclared: nothing.
	Need   roles.Need
	NeedOf func(request any) roles.Need
	// Whole says that it is about all gateways: it is not for a token that is for some of them.
	Whole bool
	// NotFound is the code of the problem that answers an error with the code not_found. Empty: unknown_job.
	NotFound string
	// Request returns a pointer to an empty request, and Read reads one from the path and the query, or, unless body is nil, from the path and the body.
	Request func() any
	Read    func(request any, path func(name string) string, query url.Values, body []byte) error
	// Do does it, and writes what comes before the answer. An answer with a method Unfinished() bool that says true is of an act that stopped halfway: the same Idempotency-Key goes on with it.
	Do func(ctx context.Context, request any, out LineWriter) (any, error)
}

// LineWriter takes what comes before the answer of an operation.
type LineWriter struct {
	// Line takes a line of the answer or of its progress, and Remark what is to be said to a person beside lines.
	Line   func(any) error
	Remark func(string)
	// As has the lines written otherwise than as JSON: their media type, and who writes them. It is called before the first line.
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

// dearer is the problem that a request asks for more than its operation's role; nil if it does not. What shows payloads is written to the log.
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

// requestOf reads a request, and says what it was sent as.
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
	return request, r.Method + " " + r.URL.Path + "\n" + string(text), nil
}

// teller answers one request for an operation.
type teller struct {
	a     *API
	o     Operation
	w     http.ResponseWriter
	r     *http.Request
	asked bool // for progress

	mu    sync.Mutex
	out   *piecemeal
	begun bool
	media string
	write func(io.Writer, any) error
}

const (
	beatOf      = 10 * time.Second // how often a long act without progress shows that it lives
	pieceOf     = 32 << 10         // bytes of lines that are sent together
	documentMax = 30 * time.Second // for an act that answers soon
)

// errStopping ends what takes its time.
var errStopping = &job.Error{Code: job.CodeUnavailable, Message: "the dispatcher that did this is stopping", Hint: "do the same again at another one, or when it is back: it goes on with what is left"}

// do does the operation and returns its answer.
func (t *teller) do(request any) (any, error) {
	ctx := t.r.Context()
	var cancel func()
	switch {
	case t.o.Answers != Document:
		_ = t.out.rc.SetReadDeadline(time.Time{}) // a recorder of a test has none
		_ = t.out.rc.SetWriteDeadline(time.Time{})
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		unless := context.AfterFunc(t.a.over, func() { stop(errStopping) })
		cancel = func() { unless(); stop(nil) }
	case t.o.Act: // it is done to its end, also for a caller who has gone: who comes again with its key hears what it came to
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), documentMax)
	default:
		ctx, cancel = context.WithTimeout(ctx, lookTime)
	}
	defer cancel()
	stop := t.beat()
	defer stop()
	return t.o.Do(ctx, request, LineWriter{Line: t.line, Remark: func(text string) {
		if t.o.Answers == Lines {
			_ = t.line(map[string]string{"remark": text})
		}
	}, As: func(media string, write func(io.Writer, any) error) { t.media, t.write = media, write }})
}

// beat shows from time to time that a long act lives, until it is stopped.
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
				_ = t.send([]byte("{}\n"), 0) // who no longer listens has ended the request
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

// send sends a text, as soon as there is more than so much.
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

// answer sends the document, or what is left of the lines.
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

// refuse sends a problem: as the whole answer, or, where lines have gone ahead, as the last one.
func (t *teller) refuse(p problem) {
	t.mu.Lock()
	begun := t.begun
	t.mu.Unlock()
	if !begun {
		p.answer(t.w)
		return
	}
	if t.write != nil { // a text that is no JSON breaks off: half of it must not pass for all
		_ = t.send(nil, -1)
		panic(http.ErrAbortHandler)
	}
	text, _ := encode(map[string]problem{"problem": p}) // it has texts and numbers alone
	_ = t.send(text, 0)
}

// encode writes JSON on a line. Texts keep <, > and &, so that a payload stays as it is.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// operationProblem tells an operator an error in the words of the command line.
func (a *API) operationProblem(r *http.Request, o Operation, err error) problem {
	p := a.problemOf(r, err)
	if errors.Is(err, context.Canceled) && a.stopping.Load() && r.Context().Err() == nil {
		err = errStopping
	}
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
		text = e.Message // where Redis is concerns nobody else
	}
	told := newProblem(c, text, e.Hint)
	told.Kind = e.Code
	return told
}
