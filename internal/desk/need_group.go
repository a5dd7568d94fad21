package desk

import (
	"fmt"
	"slices"
	"strings"

	"spillway/internal/job"
)

// fewAlike is up to how many needs that are alike each stands for itself.
const fewAlike = 3

// NeedGroup is a need, or many gateways' that are alike: of the same kind, for the same reason.
type NeedGroup struct {
	Need              // of one gateway; of many: the earliest since, all jobs, and their money where it is known of all
	Gateways []string // whose it is, in the order of the needs
}

// Several says that it is more than one gateway's.
func (g NeedGroup) Several() bool { return len(g.Gateways) > 1 }

// Names names the gateways, the first of them if there are many. Empty where What names them.
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

// Text is the group in a line, for a terminal.
func (g NeedGroup) Text() string {
	if !g.Several() {
		return g.Need.Text()
	}
	one := g.Need
	one.Gateway = g.Names()
	return one.Text()
}

// GroupNeeds puts needs together that are alike, so that the trouble of thousands of gateways does not hide that of one. The order stays: a group stands where its
// first need does.
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

// likeness is the same for needs that are alike. Since when nobody serves a gateway makes no difference.
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
		g.Amount, g.NoAmount = nil, 0 // it is looked at of the first of them alone
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
