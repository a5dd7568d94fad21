// Package remote is the table of the desk's operations, and two ways to carry them out: locally, using a
// configuration's Redis, and over HTTP. A dispatcher serves the table, and "dispatcher --server" uses it, with the
// same requests and answers.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	Long                 // one JSON document after a while, preceded by lines of progress if the client accepts them
	Lines                // NDJSON, a line for each item
)

// About describes an operation, except for what it does.
type About struct {
	Name   string // operationId in /openapi.json
	Method string
	Path   string // a pattern of http.ServeMux
	Kind   Kind
	// Act says that it changes something: its request names who acts, and may be repeated with the same
	// Idempotency-Key.
	Act bool
	// Need is the role needed. A request with a method NeedsToo() roles.Need may need more, for example to show
	// payloads.
	Need roles.Need
	// Whole says that it concerns all gateways: a token for some gateways is refused.
	Whole bool
	// Elsewhere says that the HTTP server has its own handler for it.
	Elsewhere bool
	// NotFound is the problem code for an error with code not_found. Empty: unknown_job.
	NotFound string
	// Commands are the dispatcher commands that use it: "dlq list".
	Commands []string
}

// Op is an operation from a request Q to an answer A. L is the type of its lines, or of its progress.
type Op[Q, L, A any] struct {
	About
	call func(context.Context, *Here, Q, Out[L]) (A, error)
}

// None stands for no lines, no progress or no answer.
type None struct{}

// Out takes what precedes the answer. Its functions may be nil.
type Out[L any] struct {
	Line func(L) error
	// Remark takes a remark for people besides the lines.
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

// Do carries it out at a desk.
func (o *Op[Q, L, A]) Do(ctx context.Context, d Desk, q Q, out Out[L]) (a A, err error) {
	switch d := d.(type) {
	case *Here:
		a, err = o.call(ctx, d, q, out)
	case *There:
		err = d.do(ctx, call{about: &o.About, request: q, answer: &a, remark: out.remark, line: func(text json.RawMessage) error {
			var l L
			if err := decode(text, &l); err != nil {
				return err
			}
			return out.line(l)
		}})
	}
	return a, err
}

// Ask is Do for an operation without lines, or whose lines are not wanted.
func (o *Op[Q, L, A]) Ask(ctx context.Context, d Desk, q Q) (A, error) {
	return o.Do(ctx, d, q, Out[L]{})
}

// Desk is where operations are carried out: Here, at a Redis, or There, over HTTP.
type Desk interface {
	isDesk()
	// Close closes the connection.
	Close()
}

func (*Here) isDesk()  {}
func (*There) isDesk() {}

// Here is the desk of a configuration's gateways at their Redis. Close closes DB.
type Here struct {
	Config *config.Config
	DB     *redisdb.DB
	// Traces records jobs that are admitted again. Nil: not traced.
	Traces *tracing.Tracer
	// Examiner runs the doctor's checks. Nil: none.
	Examiner *doctor.Examiner
	// As is who asks. The zero Identity: someone with access to Redis itself.
	As roles.Identity
}

// For returns the desk as seen by a user over HTTP, without the gateways invisible to that user.
func (h Here) For(who roles.Identity) *Here {
	h.As = who
	if who.Scoped() {
		some := *h.Config
		some.Gateways = slices.DeleteFunc(slices.Clone(some.Gateways), func(g config.Gateway) bool { return !who.Sees(g.Name) })
		h.Config = &some
	}
	return &h
}

// desk returns the desk of some gateways. If the user sees only some gateways, it knows of none that are not
// configured.
func (h *Here) desk(gateways []config.Gateway) *desk.Desk {
	d := desk.New(h.DB.Client, gateways).Of(h.DB.Client, h.Config.Names())
	if h.As.Scoped() {
		d.Only()
	}
	return d
}

// Close implements Desk. Everything requested has been answered by then.
func (h *Here) Close() { _ = h.DB.Close() }

// At returns the desk of the gateways with these names, or of all, in configured order. An error says that one is
// not configured.
func (h *Here) At(ctx context.Context, names []string) (*desk.Desk, error) {
	chosen, err := desk.Choose(h.Config, names)
	if err != nil {
		err = h.desk(nil).Explain(ctx, names, err)
		return nil, &coded{err, "unknown_gateway"}
	}
	return h.desk(chosen), nil
}

// At is the gateways that a request is about: none means all of the configuration.
type At struct {
	Gateways []string `json:"gateways,omitempty" query:"gateway"`
}

func (a At) named() []string { return a.Gateways }

// at returns the function of an operation whose request names gateways with At: do gets their desk.
func at[Q interface{ named() []string }, L, A any](do func(context.Context, *desk.Desk, Q, Out[L]) (A, error)) func(context.Context, *Here, Q, Out[L]) (A, error) {
	return func(ctx context.Context, h *Here, q Q, out Out[L]) (a A, err error) {
		d, err := h.At(ctx, q.named())
		if err != nil {
			return a, err
		}
		return do(ctx, d, q, out)
	}
}

// one returns the gateway of a name.
func (h *Here) one(ctx context.Context, name string) (*desk.Gateway, error) {
	d, err := h.At(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	return d.Gateways[0], nil
}

// coded is an error with a problem code.
type coded struct {
	error
	code string
}

func (c *coded) Unwrap() error { return c.error }

// ProblemCode returns the problem code.
func (c *coded) ProblemCode() string { return c.code }

func usage(hint, message string) error {
	return &job.Error{Code: job.CodeUsage, Message: message, Hint: hint}
}

// Operation is an operation of the table, independent of its types.
type Operation interface {
	// Described returns its description.
	Described() About
	// Request returns a pointer to an empty request.
	Request() any
	// Types returns an empty request, line and answer; None if there is none.
	Types() (request, line, answer any)
	// Serve carries it out here, for a request of Request. line and remark take what precedes the answer.
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

// Table returns all operations.
func Table() []Operation {
	return []Operation{
		Status, Watch, Calls, Answers, GatewayAnswers, Processes, Examine, Search, Gateways, Named, Unlisted, Audit, Lanes, Lane,
		Job, Park, ForgetJobs, Jobs,
		Batches, Batch, BatchJobs, PauseBatch, ResumeBatch, CancelBatch, ApproveBatch, RejectBatch, Approvals, ApproveRequest, RejectRequest,
		DeadLetters, DeadLetter, Stats, DeadExport, Previewed, Clear, History, VerifyTrail, ExportTrail,
		Outcomes, AckOutcomes, Pause, Resume, Limits, SetLimits, ResetLimits, ForgiveLimits, Brakes, LiftBrakes, SetLane, ResetLane, PauseLane, ResumeLane, PauseRoute, ResumeRoute, Rename, Forget,
	}
}

// Showing payloads, and repairing, need more than the rest of an operation. Undeclared means that nothing more is
// needed.

func dear(dearer bool) roles.Need {
	if dearer {
		return roles.Operate
	}
	return roles.Undeclared
}

// NeedsToo returns what a request needs in addition.
func (q JobOf) NeedsToo() roles.Need { return dear(q.Payload) }

// NeedsToo returns what a request needs in addition.
func (q DeadLettersOf) NeedsToo() roles.Need { return dear(q.Payload) }

// NeedsToo returns what a request needs in addition: an export always contains payloads.
func (q DeadExportOf) NeedsToo() roles.Need { return roles.Operate }

// NeedsToo returns what a request needs in addition: a search by payload reads payloads.
func (q SearchOf) NeedsToo() roles.Need { return dear(len(q.Fields) > 0) }

// NeedsToo returns what a request needs in addition.
func (e ExportAs) NeedsToo() roles.Need { return dear(len(e.Fields) > 0) }

// NeedsToo returns what a request needs in addition.
func (q AuditOf) NeedsToo() roles.Need { return dear(q.Repair) }

// NeedsToo returns what a request of Request needs in addition to its operation's Need; Undeclared: nothing.
func NeedsToo(request any) roles.Need {
	if r, is := request.(interface{ NeedsToo() roles.Need }); is {
		return r.NeedsToo()
	}
	return roles.Undeclared
}

// Fault is why an act stopped before its end, in an answer that says how far it got.
type Fault struct {
	Detail string   `json:"detail"`
	Hint   string   `json:"hint,omitempty"`
	Kind   job.Code `json:"kind"`

	err error // where it happened here
}

func faultOf(ctx context.Context, err error) *Fault {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		err = cause
	}
	f := &Fault{Detail: err.Error(), Kind: job.CodeOf(redisdb.Coded(err)), err: err}
	if e, is := errors.AsType[*job.Error](err); is {
		f.Hint = e.Hint
	}
	return f
}

// Err is the fault as an error; nil if there is none.
func (f *Fault) Err() error {
	switch {
	case f == nil:
		return nil
	case f.err != nil:
		return f.err
	}
	return &job.Error{Code: f.Kind, Message: f.Detail, Hint: f.Hint}
}

// Actor is who acts, and why.
type Actor struct {
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
}

// ActorOf returns a By in the form of requests.
func ActorOf(by desk.By) Actor { return Actor{by.Who, by.Why} }

// mostBy bounds the name of who acts, in bytes.
const mostBy = 200

// acts returns who acts. verb is the act that requires a reason; empty: none is required.
func (a Actor) acts(h *Here, verb string) (desk.By, error) {
	by := desk.ByOf(h.As, a.By, a.Why)
	switch {
	case a.By == "" || by.Who == "" || len(a.By) > mostBy:
		return desk.By{}, usage(fmt.Sprintf("name a person or a program in by, with at most %d bytes", mostBy), "the request does not say who makes it")
	case verb != "":
		return by, desk.NeedWhy(by.Why, verb)
	}
	return by, desk.ShortWhy(by.Why)
}

// asked returns the request if an error says that approval is needed; nil if not.
func asked(err error) *desk.Request {
	if a, is := errors.AsType[*desk.Awaits](err); is {
		return &a.Request
	}
	return nil
}
