package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"spillway/internal/desk"
)

const (
	// gatewaysShown is how many gateways a page of the list has.
	gatewaysShown = 50
	// fewGateways is the number of gateways up to which no search is needed.
	fewGateways = 8
)

// gatewayList is one page of the list of gateways, as requested.
type gatewayList struct {
	Rows       []glance
	Name       string // a part of their names; empty: all
	Doing      string // the word of their state; empty: all
	Sort       string // a key of orders; empty: configured order
	All, Met   int    // number of all gateways, and of those requested
	From, To   int    // numbers of the first and last one shown, from 1
	Prev, Next string // addresses of the previous and next page; empty if there is none
	States     []stateCount
	shown      []desk.Status
}

// stateCount is the number of gateways in a state.
type stateCount struct {
	Word string
	N    int
}

// Many reports whether there are enough gateways to need a search.
func (l gatewayList) Many() bool { return l.All > fewGateways }

// order is a way to sort the gateways.
type order struct {
	Key, Label string
	compare    func(a, b *desk.Status) int
}

// Orders returns the ways to sort the gateways, besides configured order.
func (l gatewayList) Orders() []order { return orders }

var orders = []order{
	{"name", "name", func(a, b *desk.Status) int { return strings.Compare(a.Gateway, b.Gateway) }},
	{"queued", "most queued", func(a, b *desk.Status) int { return cmp.Compare(b.Queued, a.Queued) }},
	{"parked", "most parked", func(a, b *desk.Status) int {
		return cmp.Compare(b.Glance.AllParked()-b.ForRoom(), a.Glance.AllParked()-a.ForRoom())
	}},
	{"room", "most waiting for room", func(a, b *desk.Status) int { return cmp.Compare(b.ForRoom(), a.ForRoom()) }},
	{"rate", "highest rate", func(a, b *desk.Status) int { return cmp.Compare(b.Rate1m, a.Rate1m) }},
	{"done", "most done", func(a, b *desk.Status) int { return cmp.Compare(b.Done, a.Done) }},
}

// listOf selects the gateways of the requested page. An invalid request means all.
func listOf(all []desk.Status, q url.Values) gatewayList {
	l := gatewayList{Name: strings.TrimSpace(q.Get("name")), Doing: q.Get("state"), Sort: q.Get("sort"), All: len(all)}
	counts, met := map[string]int{}, make([]*desk.Status, 0, len(all))
	for i := range all {
		s := &all[i]
		word := stateOf(*s).Word
		counts[word]++
		if (l.Doing == "" || l.Doing == word) && strings.Contains(strings.ToLower(s.Gateway), strings.ToLower(l.Name)) {
			met = append(met, s)
		}
	}
	for word, n := range counts {
		l.States = append(l.States, stateCount{word, n})
	}
	slices.SortFunc(l.States, func(a, b stateCount) int { return strings.Compare(a.Word, b.Word) })
	if i := slices.IndexFunc(orders, func(o order) bool { return o.Key == l.Sort }); i >= 0 {
		slices.SortStableFunc(met, orders[i].compare)
	}
	l.cut(met, q.Get("page"))
	return l
}

// cut keeps the page with that number, or else the first.
func (l *gatewayList) cut(met []*desk.Status, page string) {
	n, _ := strconv.Atoi(page)
	last := max((len(met)+gatewaysShown-1)/gatewaysShown, 1)
	n = min(max(n, 1), last)
	from, to := (n-1)*gatewaysShown, min(n*gatewaysShown, len(met))
	for _, s := range met[from:to] {
		l.shown = append(l.shown, *s)
	}
	l.Met, l.From, l.To = len(met), from+1, to
	if n > 1 {
		l.Prev = l.link(n - 1)
	}
	if n < last {
		l.Next = l.link(n + 1)
	}
}

// link returns the address of a page of the list.
func (l *gatewayList) link(page int) string {
	q := url.Values{}
	for key, value := range map[string]string{"name": l.Name, "state": l.Doing, "sort": l.Sort} {
		if value != "" {
			q.Set(key, value)
		}
	}
	q.Set("page", strconv.Itoa(page))
	return "/?" + q.Encode() + "#gateways"
}
