package desk

import (
	"fmt"
	"slices"
	"strings"

	"spillway/internal/job"
)

// fewAlike is the number of similar needs up to which they are not grouped.
const fewAlike = 3

// NeedGroup is one need, or similar needs of several gateways: of the same kind, for the same reason.
type NeedGroup struct {
	Need              // of one gateway; of several: the earliest since, all jobs, and their money if all of it is known
	Gateways []string // in the order of the needs
}

// Several reports whether it covers more than one gateway.
func (g NeedGroup) Several() bool { return len(g.Gateways) > 1 }

// Names names the gateways, or the first of many. It is empty if What names them.
func (g NeedGroup) Names() string {
	if g.namesItself() {
		return ""
	}
	return firstNames(g.Gateways)
}

// gatewaysNamed is how many of many gateways are named.
const gatewaysNamed = 3

func firstNames(gateways []string) string {
	names := strings.Join(gateways[:min(gatewaysNamed, len(gateways))], ", ")
	if more := len(gateways) - gatewaysNamed; more > 0 {
		names += fmt.Sprintf(" and %s more", job.CountText(int64(more)))
	}
	return names
}

// Text returns the group as one line, for a terminal.
func (g NeedGroup) Text() string {
	if !g.Several() {
		return g.Need.Text()
	}
	one := g.Need
	one.Gateway = g.Names()
	return one.Text()
}

// GroupNeeds groups similar needs, so that the needs of thousands of gateways do not hide that of one. The
// order stays: a group is at the place of its first need.
func GroupNeeds(all []Need) []NeedGroup {
	alike := map[string][]Need{}
	for _, n := range all {
		alike[n.likeness()] = append(alike[n.likeness()], n)
	}
	var groups []NeedGroup
	for _, n := range all {
		same := alike[n.likeness()]
		switch {
		case len(same) <= fewAlike || n.Kind == NeedBatch || n.Kind == NeedUnlisted || n.Kind == NeedOverload:
			groups = append(groups, NeedGroup{n, []string{n.Gateway}})
		case n.Gateway == same[0].Gateway:
			groups = append(groups, groupOf(same))
		}
	}
	return groups
}

// likeness returns a key that is equal for similar needs. Since when a gateway is not served makes no
// difference.
func (n Need) likeness() string {
	if n.Kind == NeedUnserved {
		return string(n.Kind)
	}
	return string(n.Kind) + " " + n.What
}

func groupOf(same []Need) NeedGroup {
	g := NeedGroup{Need: same[0]}
	g.Totals = job.Totals{}
	for _, n := range same {
		g.Gateways = append(g.Gateways, n.Gateway)
		g.Totals.Add(n.Totals)
		if earlier(n.Since, g.Since) < 0 {
			g.Since = n.Since
		}
	}
	switch g.Kind {
	case NeedStopped, NeedDenied, NeedReader, NeedCircuit, NeedPaused:
		g.Amount, g.NoAmount = nil, 0 // known only for the first of them
	case NeedUnserved:
		g.Amount, g.NoAmount = nil, 0
		g.What, g.Do = "no dispatcher serves these gateways", "dispatcher run"
	}
	if !slices.ContainsFunc(same, func(n Need) bool { return n.Do != same[0].Do }) || g.Kind == NeedUnserved {
		return g
	}
	g.Do = "for each of them: " + same[0].Do
	return g
}
