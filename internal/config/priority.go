package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

// mostClasses is the most classes of a gateway.
const mostClasses = 4

// Priority defines a gateway's priority classes.
type Priority struct {
	// Classes are the names of the classes, highest first; 2 to 4.
	Classes []string
	// Default is the class of jobs that name none, one of Classes.
	Default string
	// Floors is the least share, in percent, of first calls that a class gets; at most 100 together. A missing
	// class has none.
	Floors map[string]int64
}

// List returns the classes, highest first; empty if the gateway has none.
func (p *Priority) List() (all []job.Class) {
	if p == nil {
		return nil
	}
	for _, name := range p.Classes {
		all = append(all, job.Class{Name: name, Floor: p.Floors[name], Usual: name == p.Default})
	}
	return all
}

// Above returns the classes above the default.
func (p *Priority) Above() []string {
	if p == nil {
		return nil
	}
	return p.Classes[:slices.Index(p.Classes, p.Default)]
}

// Class returns the class of a job that names this one, as stored in its record: empty for the default class.
// The error for an unknown name says what to do.
func (g Gateway) Class(name string) (string, error) {
	switch p := g.Priority; {
	case name == "":
		return "", nil
	case p == nil:
		return "", fmt.Errorf("priority %q: gateway %s has no classes: leave the priority out, or write priority.classes in the configuration", name, g.Name)
	case name == p.Default:
		return "", nil
	case !slices.Contains(p.Classes, name):
		return "", fmt.Errorf("gateway %s has no class %q: it has %s%s", g.Name, name, strings.Join(p.Classes, ", "), job.DidYouMean(name, "", p.Classes))
	}
	return name, nil
}

// priority reads the classes.
func (r *reader) priority(n node) *Priority {
	p := &Priority{Floors: map[string]int64{}}
	r.object(n,
		field{"classes", func(n node) { p.Classes = r.classes(n) }},
		field{"default", r.word(&p.Default, func(string) string { return "" })},
		field{"floors", func(n node) { r.floors(n, p) }},
	)
	r.checkPriority(n.path, p)
	if r.faulted[n.path] || !slices.Contains(p.Classes, p.Default) {
		return nil
	}
	return p
}

func (r *reader) classes(n node) []string {
	all := r.words(n, "write the classes, the highest first, like [urgent, normal, batch]", checkClass)
	list, ok := n.tree.(*ast.SequenceNode)
	if ok && (len(list.Values) == 1 || len(list.Values) > mostClasses) { // including invalid ones
		r.fault(n.path, "these are %d classes: give 2 to %d", len(list.Values), mostClasses)
	}
	return all
}

func checkClass(name string) string {
	if gatewayName.MatchString(name) {
		return ""
	}
	return "is not a class's name: use lower-case letters, digits, _ and -, starting with a letter or digit"
}

func (r *reader) floors(n node, p *Priority) {
	for _, e := range r.entries(n) {
		var share int64
		r.percent(&share)(e.value)
		p.Floors[e.key] = share
	}
}

// checkPriority reports contradictory settings of the classes.
func (r *reader) checkPriority(path string, p *Priority) {
	if len(p.Classes) == 0 {
		r.missing(path+".classes", "write the classes, the highest first, like [urgent, normal, batch]")
		return
	}
	known := strings.Join(p.Classes, ", ")
	switch {
	case !r.written(path + ".default"):
		r.missing(path+".default", "write the class of jobs that name none, one of "+known)
	case !slices.Contains(p.Classes, p.Default) && !r.faulted[path+".default"]:
		r.fault(path+".default", "%q is none of the classes: write one of %s", p.Default, known)
	}
	sum := int64(0)
	for name, share := range p.Floors {
		if at := join(path+".floors", name); !slices.Contains(p.Classes, name) {
			r.fault(at, "%q is none of the classes: write one of %s", name, known)
		}
		sum += share
	}
	if sum > 100 {
		r.fault(path+".floors", "the floors add up to %d %%: give at most 100 %% together", sum)
	}
}

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
