package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"spillway/internal/desk"
	"spillway/internal/doctor"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
)

// StatusOf asks how gateways stand.
type StatusOf struct {
	At
	// Drawn asks for what a terminal draws beside the document.
	Drawn bool `json:"drawn,omitempty"`
}

// Standing is how gateways stand: "status -o json".
type Standing struct {
	// NeedsPerson is what stays as it is until a person acts, the most urgent first.
	NeedsPerson []desk.Need   `json:"needs_person"`
	Gateways    []desk.Status `json:"gateways"`
	// Unlisted are the gateways with jobs that the file does not have.
	Unlisted []desk.Unlisted `json:"unlisted,omitempty"`
	// Damaged is what is wrong with the data of gateways that can't be looked at, or not whole, a line each.
	Damaged []string `json:"damaged,omitempty"`
	// Drawn is what a terminal draws beside it; nil unless it was asked for.
	Drawn *Drawn `json:"drawn,omitempty"`
}

// Drawn is what a terminal draws of a Standing beside what programs read.
type Drawn struct {
	// Paused are batches that are paused, one for each gateway at which there are some.
	Paused []PausedBatch `json:"paused,omitempty"`
}

// PausedBatch is one of a gateway's paused batches.
type PausedBatch struct {
	Gateway string `json:"gateway"`
	Batch   string `json:"batch"`
	GoOn    string `json:"go_on"` // what lets it go on, for a person
}

// Plain is the document without what a terminal draws beside it.
func (v Standing) Plain() Standing {
	v.Drawn, v.Gateways = nil, slices.Clone(v.Gateways)
	for i := range v.Gateways {
		v.Gateways[i].Drawn = nil
	}
	return v
}

// Err is what is damaged as an error; nil if nothing is.
func (v Standing) Err() error { return damagedOf(v.Damaged) }

// Status is how gateways stand. Where none can be looked at it is an error.
var Status = &Op[StatusOf, None, Standing]{About{Name: "getStatus", Need: roles.View, Method: http.MethodGet, Path: "/v1/status", Commands: []string{"status"}}, at(status)}

func status(ctx context.Context, d *desk.Desk, q StatusOf, _ Out[None]) (v Standing, err error) {
	rows, damaged := d.StatusOfWell(ctx)
	if damaged != nil && len(rows) == 0 {
		return v, damaged
	}
	v.Gateways = rows
	if v.Unlisted, err = unlisted(ctx, d, q.At); err != nil {
		return v, err
	}
	var unseen error
	if v.NeedsPerson, unseen, err = d.Needs(ctx, rows, v.Unlisted); err != nil {
		return v, err
	}
	if damaged = desk.AlsoDamaged(damaged, unseen); damaged != nil {
		v.Damaged = strings.Split(damaged.Error(), "\n")
	}
	if !q.Drawn {
		return v, nil
	}
	v.Drawn = &Drawn{}
	for i := range rows {
		rows[i].Show()
	}
	v.Drawn.Paused, err = pausedBatches(ctx, d, rows)
	return v, err
}

// unlisted are the gateways that the configuration does not have, where all are meant.
func unlisted(ctx context.Context, d *desk.Desk, at At) ([]desk.Unlisted, error) {
	if len(at.Gateways) > 0 {
		return nil, nil
	}
	return d.Unlisted(ctx)
}

func pausedBatches(ctx context.Context, d *desk.Desk, rows []desk.Status) (all []PausedBatch, err error) {
	for _, r := range rows {
		if r.Parked[string(job.Paused)] == 0 {
			continue
		}
		g := d.Gateway(r.Gateway)
		p := PausedBatch{Gateway: r.Gateway}
		if p.Batch, err = g.PausedBatch(ctx); err != nil {
			return nil, err
		}
		if p.Batch == "" { // resumed meanwhile
			continue
		}
		if p.GoOn, err = g.GoOn(ctx, p.Batch); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Watching is how gateways stand with their calls of the last minutes: what top draws.
type Watching struct {
	Gateways []desk.Watched `json:"gateways"`
	// Damaged is what is wrong with the data of gateways that can't be looked at, a line each.
	Damaged []string `json:"damaged,omitempty"`
}

// damagedOf makes an error of lines; nil where there is none.
func damagedOf(lines []string) (all error) {
	for _, text := range lines {
		all = errors.Join(all, errors.New(text))
	}
	return all
}

// Watch is what top draws.
var Watch = &Op[At, None, Watching]{About{Name: "watch", Need: roles.View, Method: http.MethodGet, Path: "/v1/watch", Commands: []string{"top"}},
	at(func(ctx context.Context, d *desk.Desk, q At, _ Out[None]) (v Watching, err error) {
		var damaged error
		if v.Gateways, damaged, err = d.Watch(ctx); err == nil && len(v.Gateways) == 0 {
			err = damaged
		}
		if damaged != nil {
			v.Damaged = strings.Split(damaged.Error(), "\n")
		}
		for i := range v.Gateways {
			v.Gateways[i].Show()
		}
		return v, err
	})}

// CallsOf says which calls are counted. By is hour or gateway; empty is hour.
type CallsOf struct {
	At
	Since string `json:"since,omitempty"`
	By    string `json:"by,omitempty"`
}

// Calls counts the calls of the last hours.
var Calls = &Op[CallsOf, None, desk.CallHistory]{About{Name: "countCalls", Need: roles.View, Method: http.MethodGet, Path: "/v1/calls", Commands: []string{"calls"}},
	func(ctx context.Context, h *Here, q CallsOf, _ Out[None]) (v desk.CallHistory, err error) {
		by, err := desk.ParseCallsBy(q.By, "by")
		if err != nil {
			return v, err
		}
		since, err := desk.ParseAgo(q.Since, time.Now().UTC(), "since")
		if err != nil {
			return v, err
		}
		d, err := h.At(ctx, q.Gateways)
		if err != nil {
			return v, err
		}
		return d.CallHistory(ctx, since, by)
	}}

// AnswersOf says which answers are counted.
type AnswersOf struct {
	At
	Since string `json:"since,omitempty"`
	Batch string `json:"batch,omitempty"`
}

// AllAnswers is what gateways last answered, gateway by gateway.
type AllAnswers struct {
	Gateways []desk.Answers `json:"gateways"`
	// Damaged is what is wrong with the data of gateways that can't be looked at, a line each.
	Damaged []string `json:"damaged,omitempty"`
}

// Err is what is damaged as an error; nil if nothing is.
func (v AllAnswers) Err() error { return damagedOf(v.Damaged) }

// Answers counts what gateways last answered to jobs that are not done.
var Answers = &Op[AnswersOf, None, AllAnswers]{About{Name: "getAllAnswers", Need: roles.View, Method: http.MethodGet, Path: "/v1/answers", Commands: []string{"answers"}},
	func(ctx context.Context, h *Here, q AnswersOf, _ Out[None]) (v AllAnswers, err error) {
		since, err := desk.ParseAgo(q.Since, time.Now().UTC(), "since")
		if err != nil {
			return v, err
		}
		d, err := h.At(ctx, q.Gateways)
		if err != nil {
			return v, err
		}
		for _, g := range d.Gateways {
			a, err := g.Answers(ctx, since, q.Batch)
			if _, damaged := errors.AsType[*redisdb.DamagedError](err); damaged {
				v.Damaged = append(v.Damaged, fmt.Sprintf("gateway %s: %v", g.Name, err))
				continue
			}
			if err != nil {
				return v, err
			}
			v.Gateways = append(v.Gateways, a)
		}
		if len(v.Gateways) == 0 {
			return v, v.Err()
		}
		return v, nil
	}}

// AnswersAt says which answers of one gateway are counted.
type AnswersAt struct {
	Gateway string `json:"-" path:"gateway"`
	Since   string `json:"since,omitempty"`
	Batch   string `json:"batch,omitempty"`
}

// GatewayAnswers counts what one gateway last answered.
var GatewayAnswers = &Op[AnswersAt, None, desk.Answers]{About{Name: "countAnswers", Need: roles.View, Method: http.MethodGet, Path: "/v1/gateways/{gateway}/answers", Commands: []string{"answers"}},
	func(ctx context.Context, h *Here, q AnswersAt, _ Out[None]) (v desk.Answers, err error) {
		all, err := Answers.call(ctx, h, AnswersOf{At: At{Gateways: []string{q.Gateway}}, Since: q.Since, Batch: q.Batch}, Out[None]{})
		if err != nil {
			return v, err
		}
		return all.Gateways[0], nil
	}}

// Processes are the dispatchers that serve.
var Processes = &Op[None, None, desk.Processes]{About{Name: "listProcesses", Need: roles.View, Whole: true, Method: http.MethodGet, Path: "/v1/processes", Commands: []string{"processes"}},
	func(ctx context.Context, h *Here, _ None, _ Out[None]) (desk.Processes, error) {
		return desk.WhoServes(ctx, h.DB.Client)
	}}

// Examined is what will go wrong, as a dispatcher sees it: "doctor -o json".
type Examined struct {
	doctor.Examined
	// Away says that Redis could not be looked at.
	Away bool `json:"redis_away,omitempty"`
}

// Examine looks for what will go wrong. The look at all gateways is a minute old at most.
var Examine = &Op[At, None, Examined]{About{Name: "getDoctor", Need: roles.View, Whole: true, Method: http.MethodGet, Path: "/v1/doctor", Commands: []string{"doctor"}},
	func(ctx context.Context, h *Here, q At, _ Out[None]) (v Examined, err error) {
		if len(q.Gateways) > 0 {
			chosen, err := desk.Choose(h.Config, q.Gateways)
			if err != nil {
				return v, &coded{err, "unknown_gateway"}
			}
			v.At = time.Now()
			v.Report, err = doctor.Run(ctx, doctor.Params{Config: h.Config, Gateways: chosen, DB: h.DB})
			v.Away = v.Report.Away != nil
			return v, err
		}
		v.Examined, err = h.Examiner.Report(ctx)
		v.Away = v.Report.Away != nil
		return v, err
	}}

// SearchOf says which jobs are searched for.
type SearchOf struct {
	ID     string            `json:"id,omitempty"`     // the beginning of the id
	Fields map[string]string `json:"fields,omitempty"` // what stands in the payload, by "payload.customer"
	// Reference is the gateway's own of the payment, whole.
	Reference string `json:"reference,omitempty"`
	At
	Limit int    `json:"limit,omitempty"` // about how many jobs a page has; 0: 100
	After string `json:"after,omitempty"` // the next of the page before
}

// MostFound is how many jobs a page of a search over HTTP may have.
const MostFound = 1000

// Search finds jobs, a page at a time.
var Search = &Op[SearchOf, None, desk.JobHits]{About{Name: "searchJobs", Need: roles.View, Method: http.MethodPost, Path: "/v1/search", Commands: []string{"find"}},
	func(ctx context.Context, h *Here, q SearchOf, _ Out[None]) (v desk.JobHits, err error) {
		if q.Limit < 0 || q.Limit > MostFound {
			return v, usage("", "limit is not a number from 1 to "+job.CountText(MostFound))
		}
		of := desk.JobSearch{Prefix: q.ID, Reference: q.Reference, After: q.After, Limit: q.Limit, Within: desk.ScanFor}
		for name, value := range q.Fields {
			field, err := desk.NewField(name, value, "fields")
			if err != nil {
				return v, err
			}
			of.Fields = append(of.Fields, field)
		}
		d, err := h.At(ctx, q.Gateways)
		if err != nil {
			return v, err
		}
		return d.Search(ctx, of)
	}}

// KnownGateways are the gateways that the configuration has or that ever had jobs.
type KnownGateways struct {
	Gateways []desk.Known `json:"gateways"`
}

// Gateways lists the gateways that the configuration has or that ever had jobs.
var Gateways = &Op[None, None, KnownGateways]{About{Name: "listGateways", Need: roles.View, Method: http.MethodGet, Path: "/v1/gateways", Commands: []string{"gateway list"}},
	func(ctx context.Context, h *Here, _ None, _ Out[None]) (v KnownGateways, err error) {
		d, err := h.At(ctx, nil)
		if err != nil {
			return v, err
		}
		v.Gateways, err = d.Known(ctx)
		return v, err
	}}

// AuditOf says which gateways are audited, and how.
type AuditOf struct {
	At
	// Limit is how many faults, and how many notes, are listed of a gateway. Nil: 100.
	Limit *int `json:"limit,omitempty"`
	// Repair writes the books of batches anew that differ from the records of their jobs.
	Repair bool `json:"repair,omitempty"`
}

// faultsListed is how many faults of a gateway are listed unless something else is asked for.
const faultsListed = 100

// Audited is how far an audit is.
type Audited struct {
	Gateway  string `json:"gateway"`
	Accepted int64  `json:"accepted"` // jobs that there are to look at, about
	Looked   int64  `json:"looked_at"`
}

// Books is how the books of gateways stand: "audit -o json".
type Books struct {
	OK       bool         `json:"ok"`
	Gateways []desk.Audit `json:"gateways"`
	// Unlisted are the gateways with jobs that the file does not have: they were not checked.
	Unlisted []desk.Unlisted `json:"unlisted,omitempty"`
}

// Audit checks the books.
var Audit = &Op[AuditOf, Audited, Books]{About{Name: "audit", Need: roles.View, Method: http.MethodPost, Path: "/v1/audit", Kind: Long, Commands: []string{"audit"}}, auditBooks}

func auditBooks(ctx context.Context, h *Here, q AuditOf, out Out[Audited]) (v Books, err error) {
	most := faultsListed
	if q.Limit != nil {
		most = *q.Limit
	}
	if most < 0 {
		return v, usage("give a number from 0 up", "limit is below 0")
	}
	d, err := h.At(ctx, q.Gateways)
	if err != nil {
		return v, err
	}
	v = Books{OK: true, Gateways: make([]desk.Audit, len(d.Gateways))}
	for i, g := range d.Gateways {
		first, err := g.Books.Look(ctx)
		if err != nil {
			return v, err
		}
		var told error
		v.Gateways[i], err = g.Audit(ctx, desk.AuditOptions{Most: most, Repair: q.Repair, Progress: func(looked int64) {
			told = cmp.Or(told, out.line(Audited{g.Name, first.Accepted, looked}))
		}})
		if err = cmp.Or(err, told); err != nil {
			return v, err
		}
		v.OK = v.OK && v.Gateways[i].OK
	}
	v.Unlisted, err = unlisted(ctx, d, q.At)
	return v, err
}
