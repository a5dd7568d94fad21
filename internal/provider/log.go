package provider

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxCalls is how many arrivals are kept before the older half is dropped.
const maxCalls = 2_000_000

// call is one arrival.
type call struct {
	at     int64 // ns since 1970
	key    string
	id     string
	status int  // 0: not answered, or not yet
	first  bool // no call of its job came before
	over   bool
	look   bool              // a look-up
	wait   time.Duration     // with over: when to come again
	common map[string]string // what it has in common with others, by the limits' By
	charge int               // the number of the charge that it made; 0: it made none
	paid   paid              // with a charge
}

// callLog has the arrivals in the order of their stamps, and separately those that used up the limit.
type callLog struct {
	keep  int
	calls []*call
	taken []int64
	apart map[apart][]int64 // as taken, of limits by something
	most  map[Limit]int     // the most in a window among what has been dropped
}

// apart is a limit, and what the calls have in common that it counts together.
type apart struct {
	Limit
	common string
}

// used returns the times that used up a limit, of the calls that are counted together with a call.
func (l *callLog) used(limit Limit, c *call) []int64 {
	if limit.By == "" {
		return l.taken
	}
	return l.apart[apart{limit, c.common[limit.By]}]
}

// take makes a call use up the limits.
func (l *callLog) take(c *call, limits []Limit) {
	l.taken = slices.Insert(l.taken, place(l.taken, c.at), c.at)
	for _, limit := range limits {
		if limit.By == "" {
			continue
		}
		if l.apart == nil {
			l.apart = map[apart][]int64{}
		}
		of := apart{limit, c.common[limit.By]}
		times := l.apart[of]
		if len(times) > 2*limit.N+apartSlack { // no window reaches back to the earlier ones
			times = slices.Clone(times[limit.N:])
		}
		l.apart[of] = slices.Insert(times, place(times, c.at), c.at)
	}
}

// apartSlack is how many calls beyond its number are kept for a limit by something, since stamps may come out of order.
const apartSlack = 4096

// arrive checks a call against the limits and records it. Stamps may come a little out of order: each goes to
// its place, and the windows on both sides are checked.
func (l *callLog) arrive(c *call, limits []Limit, countRefused bool) {
	for _, limit := range limits {
		used := l.used(limit, c)
		if !limit.fits(used, place(used, c.at), c.at) {
			c.over = true
			c.wait = max(c.wait, limit.wait(used, c.at))
		}
	}
	if !c.over || countRefused {
		l.take(c, limits)
	}
	at := len(l.calls)
	for at > 0 && l.calls[at-1].at > c.at {
		at--
	}
	l.calls = slices.Insert(l.calls, at, c)
	l.trim(limits)
}

// trim drops the older half when the log is full.
func (l *callLog) trim(limits []Limit) {
	if len(l.calls) >= l.keep {
		l.most = l.mostIn(limits)
		l.calls = slices.Clone(l.calls[l.keep/2:])
	}
	if len(l.taken) >= l.keep {
		l.taken = slices.Clone(l.taken[l.keep/2:])
	}
}

// mostIn returns the most arrivals in any window of each limit, refused ones too.
func (l *callLog) mostIn(limits []Limit) map[Limit]int {
	times := l.times()
	most := map[Limit]int{}
	for _, limit := range limits {
		if limit.By == "" {
			most[limit] = max(l.most[limit], limit.most(times))
			continue
		}
		most[limit] = l.most[limit]
		for _, together := range l.timesBy(limit.By) {
			most[limit] = max(most[limit], limit.most(together))
		}
	}
	return most
}

// timesBy returns the times of the calls, grouped by what they have in common.
func (l *callLog) timesBy(by string) map[string][]int64 {
	all := map[string][]int64{}
	for _, c := range l.calls {
		if what, counted := c.common[by]; counted {
			all[what] = append(all[what], c.at)
		}
	}
	return all
}

func (l *callLog) times() []int64 {
	times := make([]int64, len(l.calls))
	for i, c := range l.calls {
		times[i] = c.at
	}
	return times
}

// paid is the money that a request asks for.
type paid struct {
	known    bool
	minor    int64
	currency string
}

// mostBody is how much of a request is looked at for money.
const mostBody = 1 << 20

// paid reads the whole request, and the money that it is about where the settings say where that stands.
func (p *Provider) paid(r *http.Request) (m paid) {
	cfg := p.Config()
	if cfg.Amount == "" {
		_, _ = io.Copy(io.Discard, r.Body)
		return m
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, mostBody)) // what could not be read has no amount
	_, _ = io.Copy(io.Discard, r.Body)
	field := formField(body)
	if begins := bytes.TrimSpace(body); len(begins) > 0 && begins[0] == '{' {
		field = jsonField(body)
	}
	minor, err := strconv.ParseInt(field(cfg.Amount), 10, 64)
	m.known, m.minor = err == nil, minor
	m.currency = strings.ToUpper(field(cfg.Currency))
	return m
}

// formField finds fields of a form: a.b is a[b].
func formField(body []byte) func(path string) string {
	form, _ := url.ParseQuery(string(body)) // what is good of it
	return func(path string) string {
		first, rest, deeper := strings.Cut(path, ".")
		if deeper {
			first += "[" + strings.ReplaceAll(rest, ".", "][") + "]"
		}
		return form.Get(first)
	}
}

// jsonField finds fields of JSON that are texts or numbers.
func jsonField(body []byte) func(path string) string {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var document any
	_ = d.Decode(&document) // what is no JSON has no fields
	return func(path string) string {
		v := document
		for _, name := range strings.Split(path, ".") {
			fields, _ := v.(map[string]any)
			v = fields[name]
		}
		switch v := v.(type) {
		case string:
			return v
		case json.Number:
			return v.String()
		}
		return ""
	}
}
