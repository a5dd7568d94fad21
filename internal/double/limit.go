package double

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// subject is what one bound of the table counts: all calls, or those of one endpoint or address.
type subject struct {
	limit int // its place in the table
	who   string
}

// window has the sorted moments of calls. Those that no window reaches any more are dropped.
type window struct{ times []instant }

// place returns the index of t, after equal ones. It searches from the end, since arrivals come nearly in order.
func (w *window) place(t instant) int {
	i := len(w.times)
	for i > 0 && w.times[i-1] > t {
		i--
	}
	return i
}

// fits reports whether every window (x-length, x] has at most n calls with one more call at t. Only rows of n+1 calls that include t
// can be too close together.
func (w *window) fits(n int, length, t instant) bool {
	i := w.place(t)
	at := func(j int) instant { // as if t were among them
		switch {
		case j < i:
			return w.times[j]
		case j == i:
			return t
		}
		return w.times[j-1]
	}
	for first := max(i-n, 0); first <= i && first+n <= len(w.times); first++ {
		if at(first+n)-at(first) < length {
			return false
		}
	}
	return true
}

func (w *window) add(length, t instant) {
	w.times = slices.Insert(w.times, w.place(t), t)
	old := 0
	for old < len(w.times) && w.times[old] < t-2*length {
		old++
	}
	w.times = w.times[old:]
}

// in returns the moments in (t-length, t].
func (w *window) in(length, t instant) []instant {
	first := len(w.times)
	for first > 0 && w.times[first-1] > t-length {
		first--
	}
	return w.times[first:w.place(t)]
}

// who returns for whom a limit counts a call; ok is false if it does not count the call.
func (l *Limit) who(c *call) (who string, ok bool) {
	asks := c.endpoint != nil && c.endpoint.asks()
	switch l.Over {
	case "account":
		return "", true
	case "ip":
		return c.ip, true
	case "writes":
		return "", !asks
	case "lookups":
		return "", asks
	case "endpoint":
		if c.endpoint == nil {
			return "", false
		}
		return c.endpoint.Kind + " " + c.endpoint.Path, true
	}
	return "", false // unauthorised: counted when it is
}

func (d *Double) window(s subject) *window {
	w := d.windows[s]
	if w == nil {
		w = &window{}
		d.windows[s] = w
	}
	return w
}

// subjects returns for what a call counts while it is under way.
func (d *Double) subjects(c *call) (all []subject) {
	for i := range d.table.Limits {
		l := &d.table.Limits[i]
		if who, ok := l.who(c); ok && l.AtOnce > 0 {
			all = append(all, subject{i, who})
		}
	}
	return all
}

// overrun is a limit that a call exceeds.
type overrun struct {
	*Limit
	subject
}

// count counts a call for all limits. If it exceeds one, it counts for none, and that limit is returned.
func (d *Double) count(c *call) *overrun {
	var counted []subject
	for i := range d.table.Limits {
		l := &d.table.Limits[i]
		who, ok := l.who(c)
		s := subject{i, who}
		switch {
		case !ok:
		case l.AtOnce > 0:
			if d.flying[s] > l.AtOnce {
				return &overrun{l, s}
			}
		case !d.window(s).fits(int(l.Limit.N), l.Limit.Window, c.at):
			return &overrun{l, s}
		default:
			counted = append(counted, s)
		}
	}
	for _, s := range counted {
		d.window(s).add(d.table.Limits[s.limit].Limit.Window, c.at)
	}
	return nil
}

func (d *Double) sayOver(c *call, over *overrun) reply {
	words := d.words(c, nil, d.now())
	if over.Limit.Limit != nil {
		free := c.at
		if times := d.window(over.subject).times; len(times) >= int(over.Limit.Limit.N) {
			free = times[len(times)-int(over.Limit.Limit.N)] + over.Limit.Limit.Window
		}
		words["retry_after"] = strconv.Itoa(int(max((d.real(free-c.at)+time.Second-1)/time.Second, 1)))
	}
	return d.sayWith(over.Answer, nil, words)
}

// unauthorised answers 401, unless there have been too many of them.
func (d *Double) unauthorised(c *call) reply {
	for i := range d.table.Limits {
		l := &d.table.Limits[i]
		if l.Over != "unauthorised" {
			continue
		}
		s := subject{limit: i}
		if !d.window(s).fits(int(l.Limit.N), l.Limit.Window, c.at) {
			return d.sayOver(c, &overrun{l, s})
		}
		d.window(s).add(l.Limit.Window, c.at)
	}
	return d.say(c, "unauthorised", nil)
}

// fill uses up the longest window if a fate says so.
func (d *Double) fill(c *call) {
	longest := -1
	for i, l := range d.table.Limits {
		if l.Limit != nil && l.Over != "unauthorised" && (longest < 0 || l.Limit.Window > d.table.Limits[longest].Limit.Window) {
			longest = i
		}
	}
	if longest < 0 || d.due(c, fillStage) == nil {
		return
	}
	l := &d.table.Limits[longest]
	who, _ := l.who(c)
	w := d.window(subject{longest, who})
	w.times = nil
	for range l.Limit.N {
		w.times = append(w.times, c.at-l.Limit.Window/10*9)
	}
}

// withTells adds the headers that every answer has: one value for each window of the account, with commas between.
func (d *Double) withTells(c *call, headers map[string]string) map[string]string {
	if len(d.table.Tells) == 0 {
		return headers
	}
	var limit, used, left, unix, date []string
	for i := range d.table.Limits {
		l := &d.table.Limits[i]
		who, ok := l.who(c)
		if !ok || l.Limit == nil {
			continue
		}
		in := d.window(subject{i, who}).in(l.Limit.Window, c.at)
		reset := c.at
		if len(in) > 0 {
			reset = in[0] + l.Limit.Window
		}
		frees := d.began.Add(d.real(reset))
		limit, used = append(limit, strconv.FormatInt(l.Limit.N, 10)), append(used, strconv.Itoa(len(in)))
		left = append(left, strconv.FormatInt(max(l.Limit.N-int64(len(in)), 0), 10))
		unix, date = append(unix, strconv.FormatInt(frees.Unix()+1, 10)), append(date, frees.UTC().Format(http.TimeFormat))
	}
	words := map[string]string{"key": c.key, "limit": strings.Join(limit, ","), "used": strings.Join(used, ","), "left": strings.Join(left, ","),
		"reset_unix": strings.Join(unix, ","), "reset_date": strings.Join(date, ",")}
	for name, value := range d.table.Tells {
		if value = fillIn(value, words); value != "" {
			headers = with(headers, name, value)
		}
	}
	return headers
}
