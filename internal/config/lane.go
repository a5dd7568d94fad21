package config

import (
	"slices"
	"strings"

	"spillway/internal/job"
)

// laneItself is the lanes key for jobs that name their lane themselves.
const laneItself = "lane"

// MaxWeight is the largest weight of a lane.
const MaxWeight = 1000

// Lanes says how a gateway's jobs are divided into lanes.
type Lanes struct {
	// Field is the payload field (dotted path) that names a job's lane. Empty: the job names it itself.
	Field string
	// Limits all apply to each lane, in every rolling window. Empty (default): lanes have only the gateway's.
	Limits []job.Limit
	// Weight is a lane's share of the calls, relative to other lanes with jobs; 1 (default) to 1000.
	Weight int64
	// MaxInFlight is the most calls of one lane in flight, over all processes. 0 (default) = no cap.
	MaxInFlight int64
}

// LaneKey returns where the gateway's jobs have their lane; nil if it has no lanes. A lane is required if a
// request of the gateway uses it.
func (g Gateway) LaneKey() *job.LaneKey {
	if g.Lanes == nil {
		return nil
	}
	key := job.LaneKey{Field: g.Lanes.Field}
	for _, as := range g.Ways() {
		_, takes := takesLane("", as.Request)
		key.Required = key.Required || takes
	}
	return &key
}

// lanes reads the lanes, and adds their request settings to q, which has been read before.
func (r *reader) lanes(n node, q *Request) *Lanes {
	l, key, strip := &Lanes{Weight: 1}, "", false
	r.object(n,
		field{"key", r.word(&key, checkLaneKey)},
		field{"limits", r.limits(&l.Limits)},
		field{"weight", r.count(&l.Weight, 1, MaxWeight)},
		field{"max_in_flight", r.count(&l.MaxInFlight, 0, job.MaxCount)},
		field{"strip", r.truth(&strip)},
		field{"header", func(n node) { r.laneHeaders(n, q) }},
	)
	if !r.written(n.path + ".key") {
		r.missing(n.path+".key", "say what is a job's lane: payload.account for a field of its payload, or lane for what the job says itself")
	}
	l.Field, _ = strings.CutPrefix(key, "payload.")
	if key == laneItself {
		l.Field = ""
	}
	if strip && l.Field == "" {
		r.clash(n.path+".strip", n.path+".key", "jobs name their lane themselves, so their payloads don't have it: take strip out, or write key: payload.FIELD")
	}
	if strip && !slices.Contains(q.Strip, l.Field) {
		q.Strip = append(slices.Clip(q.Strip), l.Field)
	}
	return l
}

// laneHeaders adds headers to those of the request.
func (r *reader) laneHeaders(n node, q *Request) {
	more := Request{Key: q.Key}
	r.headers(n, &more)
	for _, name := range slices.Sorted(slices.Values(more.headerNames())) {
		path, parts := join(n.path, name), more.JobHeaders[name]
		switch {
		case slices.ContainsFunc(q.headerNames(), func(own string) bool { return strings.EqualFold(own, name) }):
			r.fault(path, "stands in request.headers too: keep one of them")
		case !slices.ContainsFunc(parts, func(p HeaderPart) bool { return p.Place == laneItself }):
			r.fault(path, `has no {lane}: write it as in Stripe-Account: "{lane}", or put the header into request.headers`)
		default:
			if q.JobHeaders == nil {
				q.JobHeaders = map[string][]HeaderPart{}
			}
			q.JobHeaders[name] = parts
		}
	}
}

// checkLaneKey returns what is wrong with the lanes key.
func checkLaneKey(key string) string {
	field, inPayload := strings.CutPrefix(key, "payload.")
	switch {
	case key == laneItself:
		return ""
	case !inPayload || field == "":
		return "is not a lane's key: write payload.FIELD, or lane for what jobs say themselves"
	}
	return checkField(field)
}

// takesLane returns which part of a request uses the job's lane.
func takesLane(path string, q Request) (where string, takes bool) {
	for name, parts := range q.JobHeaders {
		if slices.ContainsFunc(parts, func(p HeaderPart) bool { return p.Place == laneItself }) {
			return join(path+".request.headers", name), true
		}
	}
	return path + ".request.url", strings.Contains(q.URLText, "{lane}")
}

// checkLanes reports uses of the lane at a gateway without lanes.
func (r *reader) checkLanes(path string, g *Gateway) {
	if where, takes := takesLane(path, g.Request); takes && g.Lanes == nil {
		r.fault(where, "takes the {lane} of a job, and the gateway has no lanes: write lanes: {key: payload.account}, say")
	}
	if g.Lanes != nil && g.Lanes.Field != "" && g.Map != nil && !makes(g.Map, g.Lanes.Field) {
		r.clash(path+".lanes.key", path+".map", "the lane is the payload's field %q, and the map does not make it: name it there", g.Lanes.Field)
	}
}
