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
