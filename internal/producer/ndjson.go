package producer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"spillway/internal/job"
)

// MaxBatch is the longest batch name, in bytes.
const MaxBatch = 200

var (
	errNoID      = errors.New("no id: each job needs one, so that it is never charged twice")
	errIDKind    = errors.New("the id must be a text in quotes or a whole number")
	errCost      = errors.New("cost must be a whole number of at least 1")
	errNoPayload = errors.New("no payload to replace the job's with: dlq show and list write it with --payload")
	errMapped    = errors.New("mapped must be true or false: whether the payload is already what the gateway's map makes")
	errObject    = errors.New("payload must be an object, as in {\"amount\":1050}")
	errAfterLife = errors.New("expires must be later than at: this job would expire before it may be sent")
)

// wrappedJob reads a line of the form {"id": …, "payload": {…}, …}.
func (r *Reader) wrappedJob(raw []byte) (job.Job, error) {
	if err := r.json.object(raw); err != nil {
		return job.Job{}, err
	}
	j := r.flagJob()
	if !r.opt.Shown {
		j.Payload = json.RawMessage("{}")
	}
	r.sealed, r.paid, r.mapped = nil, false, r.opt.Shown || r.opt.Map == nil
	for _, m := range r.json.members {
		if err := r.set(&j, m); err != nil {
			return job.Job{}, err
		}
	}
	if r.sealed != nil {
		r.mapped = true
		if err := r.unseal(&j); err != nil {
			return job.Job{}, err
		}
	}
	if j.Payload == nil {
		return job.Job{}, errNoPayload
	}
	if !r.mapped {
		if err := r.mapPayload(&j); err != nil {
			return job.Job{}, err
		}
	}
	return r.checked(j)
}

// shown lists what dlq show and list write of a job beyond the job itself.
var shown = []string{"reason", "error", "attempts", "attempts_spent", "parked_at", "replays", "idempotency_key", "status", "accepted_at", "first_call_at",
	"edited_at", "may_have_charged", "amount", "replay", "calls", "in_vain", "cursor"}

// flagJob returns a job with the values that the options set for every job.
func (r *Reader) flagJob() job.Job {
	cost := int64(1)
	if r.opt.Shown {
		cost = 0
	}
	return job.Job{Gateway: r.opt.Gateway, Cost: cost, At: r.opt.At, Expires: r.opt.Expires, Batch: r.opt.Batch, Route: r.opt.Route, Priority: r.opt.Class, Lane: r.opt.Lane}
}

// set sets one member of a wrapped line. Null means absent, except for the payload: a null payload is surely a
// mistake.
func (r *Reader) set(j *job.Job, m member) (err error) {
	null := string(m.value) == "null"
	switch string(m.key) {
	case "id":
		j.ID, err = idOf(m.value)
	case "payload":
		if m.value[0] != '{' {
			return errObject
		}
		j.Payload, r.paid = r.compact(m.value), true
	case "sealed":
		r.sealed = m.value
	case "mapped":
		err = r.finished(m.value)
	case "gateway":
		if !null {
			j.Gateway, err = r.gatewayOf(m)
		}
	case "cost":
		if !null {
			j.Cost, err = costOf(m.value)
		}
	case "at":
		if !null {
			j.At, err = timeOf(m)
		}
	case "expires":
		if !null {
			j.Expires, err = timeOf(m)
		}
	case "batch":
		if !null && !(r.opt.Shown && string(m.value) == `""`) {
			j.Batch, err = r.batchOf(m)
		}
	case "priority":
		if !null {
			var class string
			class, err = textOf(m)
			j.Priority = cmp.Or(class, j.Priority)
		}
	case "lane":
		if !null {
			var lane string
			lane, err = textOf(m)
			j.Lane = cmp.Or(lane, j.Lane)
		}
	case "route":
		if !null {
			var route string
			route, err = textOf(m)
			j.Route = cmp.Or(route, j.Route)
		}
	default:
		if r.opt.Shown && slices.Contains(shown, string(m.key)) {
			return nil
		}
		return r.unknownKey(m.key)
	}
	return err
}

func (r *Reader) unknownKey(key []byte) error {
	hint := ""
	if r.opt.Flags {
		hint = "; where the line itself is the payload, name its id with --id-field"
	}
	return fmt.Errorf("unknown key %s: known are id, payload, gateway, route, lane, priority, cost, at, expires and batch%s", show(key), hint)
}

// checked returns the job, or why it is invalid.
func (r *Reader) checked(j job.Job) (job.Job, error) {
	if j.ID == "" {
		return job.Job{}, errNoID
	}
	if err := job.CheckID(j.ID); err != nil {
		return job.Job{}, err
	}
	most, err := r.maxCost(j.Gateway)
	if err != nil {
		return job.Job{}, err
	}
	switch {
	case most > 0 && j.Cost > most:
		return job.Job{}, fmt.Errorf("cost %d is more than %d, the most that a limit of gateway %s can ever grant", j.Cost, most, j.Gateway)
	case !j.At.IsZero() && !j.Expires.IsZero() && !j.Expires.After(j.At):
		return job.Job{}, errAfterLife
	case len(j.Payload) > job.MaxLine:
		return job.Job{}, fmt.Errorf("its payload would have %d bytes: the most is %d", len(j.Payload), job.MaxLine)
	}
	if j.Route, err = r.route(j); err != nil {
		return job.Job{}, err
	}
	if r.gateway.lanes != nil || j.Lane != "" {
		if j.Lane, err = r.lane(j); err != nil {
			return job.Job{}, err
		}
	}
	if r.opt.ClassOf != nil && j.Priority != "" {
		if j.Priority, err = r.opt.ClassOf(j.Gateway, j.Priority); err != nil {
			return job.Job{}, err
		}
	}
	if r.opt.Key != nil {
		if err := r.opt.Key(j.Gateway, j.ID); err != nil {
			return job.Job{}, err
		}
	}
	if err := CheckAmount(j.Payload, r.gateway.amount); err != nil {
		if r.gateway.mapper != nil && !r.mapped {
			err = r.gateway.mapper.traced(err)
		}
		return job.Job{}, err
	}
	return r.cards(j)
}

// idOf returns the id, or "" for null.
func idOf(value []byte) (string, error) {
	switch {
	case string(value) == "null":
		return "", nil
	case value[0] == '"':
		return unquote(value), nil
	case isInteger(value):
		return string(value), nil
	}
	return "", errIDKind
}

func isInteger(number []byte) bool {
	for i, c := range number {
		if (c < '0' || c > '9') && (i > 0 || c != '-' || len(number) == 1) {
			return false
		}
	}
	return true
}

func costOf(value []byte) (int64, error) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if errors.Is(err, strconv.ErrRange) && n == math.MaxInt64 {
		return 0, errors.New("cost is more than any limit can grant")
	}
	if err != nil || n < 1 {
		return 0, errCost
	}
	return n, nil
}

func textOf(m member) (string, error) {
	if m.value[0] != '"' {
		return "", fmt.Errorf("%s must be a text in quotes", m.key)
	}
	return unquote(m.value), nil
}

func timeOf(m member) (time.Time, error) {
	text, err := textOf(m)
	if err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s must be a time as in 2026-11-30T18:00:00Z", m.key)
	}
	if t.Unix() <= 0 {
		return time.Time{}, fmt.Errorf("%s lies before 1970", m.key)
	}
	return t, nil
}

func (r *Reader) gatewayOf(m member) (string, error) {
	if quotedIs(m.value, r.gateway.name) {
		return r.gateway.name, nil
	}
	name, err := textOf(m)
	if err == nil && name == "" {
		return "", errEmptyGateway
	}
	return name, err
}

func (r *Reader) batchOf(m member) (string, error) {
	if quotedIs(m.value, r.batch) {
		return r.batch, nil
	}
	text, err := textOf(m)
	if err != nil {
		return "", err
	}
	if err := checkBatch(text); err != nil {
		return "", err
	}
	if !strings.Contains(text, `\`) { // text without one is never an escape in another line
		r.batch = text
	}
	return text, nil
}

// quotedIs reports whether value is text in quotes. It does not resolve escapes.
func quotedIs(value []byte, text string) bool {
	return text != "" && len(value) == len(text)+2 && string(value[1:len(value)-1]) == text
}

func checkBatch(name string) error {
	if name == "" || len(name) > MaxBatch {
		return fmt.Errorf("the batch's name must have 1 to %d bytes", MaxBatch)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("the batch's name %q is not UTF-8", name)
	}
	for _, c := range name {
		if !unicode.IsPrint(c) {
			return fmt.Errorf("the batch's name has the character %q, which can't be printed", c)
		}
	}
	return nil
}

// route returns the route of a job. A line that replaces a job's payload must name the job's route or none.
func (r *Reader) route(j job.Job) (string, error) {
	switch {
	case j.Route == "" && r.opt.Shown:
		return "", nil
	case j.Route == "":
		return r.gateway.route, nil
	case r.opt.RouteOf == nil:
		return j.Route, nil
	}
	return r.opt.RouteOf(j.Gateway, j.Route)
}
