// Package remote is the table of what operators see and do at the desk, and the ways to reach it: at the Redis of a configuration, and over HTTP. A dispatcher serves
// the table, and "dispatcher --server" asks it, with the same requests and the same answers.
package remote

import (
	"context"
	"encoding/json"
	"slices"

	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/doctor"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
	"spillway/internal/tracing"
)

// Kind says how an operation answers over HTTP.
type Kind int

// The kinds.
const (
	Document Kind = iota // one JSON document
	Long                 // one JSON document that takes its time, with lines of progress before it for who accepts them
	Lines                // NDJSON, a line for each item
)

// About is what there is to know of an operation but for what it does.
type About struct {
	Name   string // operationId in /openapi.json
	Method string
	Path   string // as http.ServeMux has it
	Kind   Kind
	// Act says that it changes something: its request names who does it, and may come again with the same Idempotency-Key.
	Act bool
	// Need is what it needs of who asks. A request with a method NeedsToo() roles.Need may need more: to show payloads, say.
	Need roles.Need
	// Whole says that it is about all gateways: it is not for a token that is for some of them.
	Whole bool
	// Elsewhere says that the HTTP side has its own handler for it.
	Elsewhere bool
	// NotFound is the code of the problem that answers an error with the code not_found. Empty: unknown_job.
	NotFound string
	// Commands are those of dispatcher that it is for: "dlq list".
	Commands []string
}

// Op is an operation: from a request Q to an answer A. L is its lines, or its progress.
type Op[Q, L, A any] struct {
	About
	call func(context.Context, *Here, Q, Out[L]) (A, error)
}

// None stands for lines, progress or an answer that there is not.
type None struct{}

// Out hears of what comes before the answer. Its functions may be nil.
type Out[L any] struct {
	Line func(L) error
	// Remark hears what is to be said to a person beside the lines.
	Remark func(text string)
}

func (o Out[L]) line(l L) error {
	if o.Line == nil {
		return nil
	}
	return o.Line(l)
}

func (o Out[L]) remark(text string) {
	if o.Remark != nil {
		o.Remark(text)
	}
}

// Do does it at a desk.
func (o *Op[Q, L, A]) Do(ctx context.Context, d Desk, q Q, out Out[L]) (a A, err error) {
	err = d.do(ctx, call{about: &o.About, request: q, answer: &a, remark: out.remark,
		here: func(ctx context.Context, h *Here) (err error) { a, err = o.call(ctx, h, q, out); return err },
		line: func(text json.RawMessage) error {
			var l L
			if err := decode(text, &l); err != nil {
				return err
			}
			return out.line(l)
		}})
	return a, err
}

// Ask is Do for an operation that has no lines, or of which nobody hears them.
func (o *Op[Q, L, A]) Ask(ctx context.Context, d Desk, q Q) (A, error) {
	return o.Do(ctx, d, q, Out[L]{})
}

// Desk is where operations are done. There are Here, at a Redis, and There, over HTTP.
type Desk interface {
	do(context.Context, call) error
	// Close gives the connection back.
	Close()
}

// call is an operation with its request.
type call struct {
	about   *About
	request any
	answer  any // points to it
	here    func(context.Context, *Here) error
	line    func(json.RawMessage) error
	remark  func(string)
}

// Here is the desk of a configuration's gateways at their Redis. DB is closed with it.
type Here struct {
	Config *config.Config
	DB     *redisdb.DB
	// Traces hears of jobs that are taken in again. Nil: nobody does.
	Traces *tracing.Tracer
	// Examiner looks for what will go wrong. Nil: nobody asks.
	Examiner *doctor.Examiner
	// As is who asks. The zero Identity: who has Redis, whom nobody has to let in.
	As roles.Identity
}

// For returns the desk of who asks over HTTP: the gateways that do not exist for him are not there.
func (h Here) For(who roles.Identity) *Here {
	h.As = who
	if who.Scoped() {
		some := *h.Config
		some.Gateways = slices.DeleteFunc(slices.Clone(some.Gateways), func(g config.Gateway) bool { return !who.Sees(g.Name) })
		h.Config = &some
	}
	return &h
}

// desk returns the desk of some gateways. It knows of none that the configuration does not have where who asks sees some alone.
func (h *Here) desk(gateways []config.Gateway) *desk.Desk {
	d := desk.New(h.DB.Client, gateways).Of(h.DB.Client, h.Config.Names())
	if h.As.Scoped() {
		d.Only()
	}
	return d
}

func (h *Here) do(ctx context.Context, c call) error { return c.here(ctx, h) }

// Close implements Desk. What was asked has been answered by then.
func (h *Here) Close() { _ = h.DB.Close() }

// At returns the desk of the gateways of these names, or of all, in the order of the configuration. An error says that the configuration has no such gateway.
func (h *Here) At(ctx context.Context, names []string) (*desk.Desk, error) {
	chosen, err := desk.Choose(h.Config, names)
	if err != nil {
		err = h.desk(nil).Explain(ctx, names, err)
		return nil, &coded{err, "unknown_gateway"}
	}
	return h.desk(chosen), nil
}

// one returns the gateway of a name.
func (h *Here) one(ctx context.Context, name string) (*desk.Gateway, error) {
	d, err := h.At(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	return d.Gateways[0], nil
}

// coded is an error with the code of its problem.
type coded struct {
	error
	code string
}

func (c *coded) Unwrap() error { return c.error }

// ProblemCode is the code of the problem that answers it.
func (c *coded) ProblemCode() string { return c.code }

func usage(hint, message string) error {
	return &job.Error{Code: job.CodeUsage, Message: message, Hint: hint}
}

// Operation is an operation of the table, whatever its types.
type Operation interface {
	// Described returns what there is to know of it.
	Described() About
	// Request returns a pointer to an empty request.
	Request() any
	// Types returns an empty request, line and answer; None where there is none.
	Types() (request, line, answer any)
	// Serve does it here, for a request of Request. line and remark hear of what comes before the answer.
	Serve(ctx context.Context, h *Here, request any, line func(any) error, remark func(string)) (any, error)
}

// Described implements Operation.
func (o *Op[Q, L, A]) Described() About { return o.About }

// Request implements Operation.
func (o *Op[Q, L, A]) Request() any { return new(Q) }

// Types implements Operation.
func (o *Op[Q, L, A]) Types() (request, line, answer any) {
	var q Q
	var l L
	var a A
	return q, l, a
}

// Serve implements Operation.
func (o *Op[Q, L, A]) Serve(ctx context.Context, h *Here, request any, line func(any) error, remark func(string)) (any, error) {
	return o.call(ctx, h, *request.(*Q), Out[L]{Line: func(l L) error { return line(l) }, Remark: remark})
}
