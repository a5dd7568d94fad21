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
	// fewGateways is up to how many of them nobody has to look for one.
	fewGateways = 8
)

// gatewayList is one page of the list of gateways, as it was asked for.
type gatewayList struct {
	Rows       []glance
	Name       string // a part of their names; empty: all
	Doing      string // the word of their state; empty: all
	Sort       string // the key of orders; empty: the order of the file
	All, Met   int    // how many there are, and how many are asked for
	From, To   int    // the first and the last that are shown, from 1 on
	Prev, Next string // addresses of the pages before and behind; empty where there is none
	States     []stateCount
	shown      []desk.Status
}

// stateCount is how many gateways are in a state.
type stateCount struct {
	Word string
	N    int
}

// Many says that there are so many gateways that one has to be looked for.
func (l gatewayList) Many() bool { return l.All > fewGateways }

// order is a way to sort the gateways.
type order struct {
	Key, Label string
	compare    func(a, b *desk.Status) int
}

// Orders are the ways to sort the gateways, but for the order of the file.
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

// listOf chooses the gateways of the page that is asked for. What is asked wrongly means all.
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

// cut keeps the page of that number, or else the first.
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

// link is the address of a page of the list.
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
