package main

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/doctor"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
	"spillway/internal/roles"
)

// operations returns the operations of the API: everything that operators see and do.
func (s served) operations(x *doctor.Examiner) (all []httpapi.Operation) {
	for _, op := range remote.Table() {
		about := op.Described()
		if about.Elsewhere {
			continue
		}
		all = append(all, httpapi.Operation{Method: about.Method, Path: about.Path, Act: about.Act, Need: about.Need, NeedOf: remote.NeedsToo, Whole: about.Whole, NotFound: about.NotFound, Request: op.Request, Read: remote.Read,
			Answers: map[remote.Kind]httpapi.Answers{remote.Document: httpapi.Document, remote.Long: httpapi.Long, remote.Lines: httpapi.Lines}[about.Kind],
			Do: func(ctx context.Context, request any, out httpapi.LineWriter) (any, error) {
				asCSV(request, out)
				who, _ := roles.Of(ctx)
				return op.Serve(ctx, remote.Here{Config: s.file.Load(), DB: s.db, Traces: s.traces, Examiner: x}.For(who), request, out.Line, out.Remark)
			}})
	}
	return all
}

// asCSV makes an export CSV if the request asks for that.
func asCSV(request any, out httpapi.LineWriter) {
	e, is := request.(interface{ Columns() ([]string, bool) })
	if !is {
		return
	}
	fields, wanted := e.Columns()
	if !wanted {
		return
	}
	var to *cli.CSV
	var piece pieces
	out.As("text/csv; charset=utf-8", func(w io.Writer, line any) (err error) {
		piece.Writer = w
		if to == nil {
			if to, err = cli.NewCSV(&piece, csvTitles(fields)...); err != nil {
				return err
			}
		}
		if l, is := line.(remote.JobLine); is {
			err = to.Row(append(csvCells(l.JobLine), fieldCells(fields, l.JobLine)...)...)
		}
		if err != nil {
			return err
		}
		return to.Flush()
	})
}

// pieces is a writer whose underlying writer changes for each piece.
type pieces struct{ io.Writer }

// sessions stores console sessions in Redis.
type sessions struct{ redisdb.Once }

func sessionKey(id string) string { return "console session " + id }

// Keep implements httpapi.Sessions.
func (s sessions) Keep(ctx context.Context, id, text string, within time.Duration) error {
	return s.Once.Keep(ctx, sessionKey(id), text, within)
}

// Find implements httpapi.Sessions.
func (s sessions) Find(ctx context.Context, id string) (string, error) {
	return s.Once.Kept(ctx, sessionKey(id))
}

// Drop implements httpapi.Sessions.
func (s sessions) Drop(ctx context.Context, id string) error {
	return s.Once.Drop(ctx, sessionKey(id))
}

// onceKept stores the results of acts in Redis.
type onceKept struct{ redisdb.Once }

const (
	actKept  = 24 * time.Hour         // how long a result is kept
	actAlive = 3 * httpapi.RenewEvery // how long an act without a sign of life counts as in progress
)

// Begin implements httpapi.Once.
func (o onceKept) Begin(ctx context.Context, key, digest string) (*httpapi.Kept, error) {
	text, err := json.Marshal(httpapi.Kept{Digest: digest})
	if err != nil {
		return nil, err
	}
	before, err := o.Once.Begin(ctx, key, string(text), actAlive)
	if err != nil || before == "" {
		return nil, err
	}
	var k httpapi.Kept
	return &k, json.Unmarshal([]byte(before), &k)
}

// Renew implements httpapi.Once.
func (o onceKept) Renew(ctx context.Context, key string) error {
	return o.Once.Renew(ctx, key, actAlive)
}

// Keep implements httpapi.Once.
func (o onceKept) Keep(ctx context.Context, key string, answer httpapi.Kept) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return o.Once.Keep(ctx, key, string(text), actKept)
}

// toldOutcomes adapts a gateway's outcome feed to the API.
type toldOutcomes struct{ *desk.Outcomes }

// outcomes returns the outcome feed of a configured gateway.
func (s served) outcomes(gateway string) (httpapi.Outcomes, error) {
	cfg := s.file.Load()
	g, ok := cfg.Gateway(gateway)
	if !ok {
		return nil, dispatch.NoGateway(cfg, gateway)
	}
	told, err := desk.New(s.db.Client, []config.Gateway{g}).Gateways[0].Outcomes()
	return toldOutcomes{told}, err
}

// Read implements httpapi.Outcomes.
func (t toldOutcomes) Read(ctx context.Context, after string, limit int) ([]httpapi.Outcome, error) {
	page, err := t.Outcomes.Read(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	lines := make([]httpapi.Outcome, len(page))
	for i, o := range page {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		lines[i] = httpapi.Outcome{Cursor: o.Cursor, Line: text}
	}
	return lines, nil
}

// Ack implements httpapi.Outcomes.
func (t toldOutcomes) Ack(ctx context.Context, reader, cursor string) (any, error) {
	return t.Outcomes.Ack(ctx, reader, cursor)
}

// apiPatience is how long a request waits for an unreachable Redis before it is answered with an error: long
// enough for a broken connection to be replaced.
const apiPatience = time.Second

// api returns the HTTP side of run: cfg, with the API's operations. Jobs may be posted to every configured
// gateway, even to those that other processes serve.
func (s served) api(cfg httpapi.Config, x *doctor.Examiner) *httpapi.API {
	cfg.Log = s.log
	cfg.Gateways = offered(s.db.Client, s.file.Load())
	cfg.Door = s.door
	cfg.State = func(ctx context.Context, gateway, id string) (job.State, error) {
		found, err := s.found(ctx, gateway, id)
		return found.Record.State, err
	}
	cfg.Job = func(ctx context.Context, gateway, id string) (any, error) {
		found, err := s.found(ctx, gateway, id)
		if err != nil {
			return nil, err
		}
		return found.Job(ctx)
	}
	cfg.Outcomes = s.outcomes
	cfg.Operations, cfg.Once = s.operations(x), onceKept{redisdb.NewOnce(s.db.Client)}
	return httpapi.New(cfg)
}

// found returns the record of a job of one gateway.
func (s served) found(ctx context.Context, gateway, id string) (desk.Found, error) {
	cfg := s.file.Load()
	g, ok := cfg.Gateway(gateway)
	if !ok {
		return desk.Found{}, dispatch.NoGateway(cfg, gateway)
	}
	return desk.New(s.db.Client, []config.Gateway{g}).FindOne(ctx, id)
}

// offered returns what callers are told of each gateway's admission.
func offered(c redis.UniversalClient, cfg *config.Config) map[string]httpapi.Gateway {
	all := make(map[string]httpapi.Gateway, len(cfg.Gateways))
	for _, g := range cfg.Gateways {
		all[g.Name] = httpapi.Gateway{MaxCost: dispatch.MaxCost(g), Amount: dispatch.AmountRule(g), Cards: g.Pan, Policies: policies(dispatch.Follow(c, g))}
	}
	return all
}

func policies(of *dispatch.Follower) func(context.Context) []httpapi.Policy {
	return func(ctx context.Context) (all []httpapi.Policy) {
		a := of.Admission(ctx)
		for _, l := range a.Limits {
			all = append(all, policy(a, l))
		}
		return all
	}
}

// policy returns a limit as a quota and the time in which it comes back. For a bucket, the quota is its burst,
// which comes back at the limit's rate.
func policy(a config.Admission, l job.Limit) httpapi.Policy {
	if !job.Bursts(a.Algorithm) {
		return httpapi.Policy{Name: l.String(), Quota: l.N, Window: l.Window}
	}
	whole := float64(a.Burst) / float64(l.N) * float64(l.Window)
	return httpapi.Policy{Name: l.String(), Quota: a.Burst, Window: time.Duration(whole)}
}
