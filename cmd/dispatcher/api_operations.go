package main

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"spillway/internal/cli"
	"spillway/internal/doctor"
	"spillway/internal/httpapi"
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
