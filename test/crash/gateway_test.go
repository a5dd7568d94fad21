package crash

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/provider"
)

// The first word of a job's id says what its gateway does with the job. With any other word the job is charged at once.
const (
	fails   = "fails"   // the first call is charged and answered with 500
	cut     = "cut"     // the first call is charged, and the connection reset before the answer
	hangs   = "hangs"   // the first call is charged and not answered
	refuses = "refuses" // each call with the job's first key is answered with 402
	holds   = "holds"   // the first call is answered with 429
	slow    = "slow"    // charged after a while
	drops   = "drops"   // the first call is not charged, and the connection reset
	hides   = "hides"   // as cut, and the first look-up does not find it
	taken   = "taken"   // answered with 202, and charged when it is looked up for the second time
	denied  = "denied"  // answered with 202, and declined when it is looked up
	balks   = "balks"   // as cut, and the first look-up is answered with 500
)

// slowness is long enough for a second call to begin meanwhile, also on a busy machine.
const slowness = time.Second

// bank serves the gateways of all runs: http://ADDR/GATEWAY/ID.
type bank struct {
	addr  string
	mu    sync.Mutex
	tills map[string]*till
}

// till is one gateway. A strict provider does the charging.
type till struct {
	provider *provider.Provider
	mu       sync.Mutex
	calls    []arrival
	looks    map[string]int // by job
	charges  map[string]int
}

// arrival is a call that arrived.
type arrival struct {
	id, key string
	at      time.Time
	look    bool // it only asked
	answer  int  // 0: none
}

// String returns when the call arrived, its key, and the answer.
func (a arrival) String() string {
	if a.look {
		return fmt.Sprintf("%s a look-up→%d", a.at.Format("05.000"), a.answer)
	}
	return fmt.Sprintf("%s key %q→%d", a.at.Format("05.000"), a.key, a.answer)
}

// openBank opens a bank that closes with the test.
func openBank(t *testing.T) *bank {
	t.Helper()
	ln, err := provider.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{addr: ln.Addr().String(), tills: map[string]*till{}}
	srv := &http.Server{Handler: b, ReadHeaderTimeout: time.Minute, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, stampKey{}, c)
	}}
	go func() { _ = srv.Serve(stampedListener{ln}) }()
	t.Cleanup(func() { _ = srv.Close() })
	return b
}

// open opens a gateway.
func (b *bank) open(gateway string) *till {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tills[gateway] = &till{provider: provider.New(provider.Config{}), charges: map[string]int{}, looks: map[string]int{}}
	return b.tills[gateway]
}

// shut forgets a gateway.
func (b *bank) shut(gateway string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.tills, gateway)
}

// ServeHTTP finds the gateway by the path's first piece.
func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := r.Context().Value(stampKey{}).(*stampedConn).take()
	gateway, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	b.mu.Lock()
	t := b.tills[gateway]
	b.mu.Unlock()
	if t == nil {
		http.Error(w, "no such gateway", http.StatusInternalServerError)
		return
	}
	if asked, look := strings.CutPrefix(id, "look/"); look {
		t.look(w, arrival{id: asked, at: at, look: true})
		return
	}
	t.serve(w, r, arrival{id: id, key: r.Header.Get("Idempotency-Key"), at: at})
}

// serve answers one call and notes it.
func (t *till) serve(w http.ResponseWriter, r *http.Request, a arrival) {
	n := t.arrive(a)
	first := !slices.ContainsFunc(t.seen()[:n], func(b arrival) bool { return b.id == a.id && !b.look })
	status := 0
	switch word := wordOf(a.id); {
	case word == refuses && (a.key == "" && first || a.key == a.id):
		status = http.StatusPaymentRequired
	case word == holds && first:
		w.Header().Set("Retry-After", "1")
		status = http.StatusTooManyRequests
	case word == fails && first:
		t.charge(r, a)
		status = http.StatusInternalServerError
	case slices.Contains([]string{cut, hides, balks}, word) && first:
		t.charge(r, a)
		panic(http.ErrAbortHandler)
	case word == drops && first:
		panic(http.ErrAbortHandler)
	case word == taken, word == denied:
		status = http.StatusAccepted
	case word == hangs && first:
		t.charge(r, a)
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	default:
		if word == slow {
			<-time.After(slowness)
		}
		status = t.charge(r, a)
	}
	t.mu.Lock()
	t.calls[n].answer = status
	t.mu.Unlock()
	w.WriteHeader(status)
}

// look answers a look-up and records it. A job that is taken is charged at the second look-up.
func (t *till) look(w http.ResponseWriter, a arrival) {
	n := t.arrive(a)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looks[a.id]++
	first, word, state := t.looks[a.id] == 1, wordOf(a.id), ""
	called := slices.ContainsFunc(t.calls[:n], func(b arrival) bool { return b.id == a.id && !b.look })
	if word == taken && called && !first && t.charges[a.id] == 0 {
		t.charges[a.id]++
	}
	switch {
	case word == balks && first:
		t.calls[n].answer = http.StatusInternalServerError
	case word == hides && first:
	case word == denied && called:
		state = "declined"
	case t.charges[a.id] > 0:
		state = "paid"
	case word == taken && called:
		state = "open"
	}
	if t.calls[n].answer == 0 && state == "" {
		t.calls[n].answer = http.StatusNotFound
	}
	if state != "" {
		t.calls[n].answer = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(t.calls[n].answer)
	fmt.Fprintf(w, `{"id":"ch_%[1]s","job":%[1]q,"status":%[2]q}`, a.id, state)
}

func wordOf(id string) string {
	word, _, _ := strings.Cut(id, "-")
	return word
}

func (t *till) arrive(a arrival) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, a)
	return len(t.calls) - 1
}

// charge has the provider charge the card, unless it knows the key.
func (t *till) charge(r *http.Request, a arrival) int {
	answer := httptest.NewRecorder()
	t.provider.ServeHTTP(answer, r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if answer.Code == http.StatusOK && answer.Header().Get("Idempotent-Replayed") == "" {
		t.charges[a.id]++
	}
	return answer.Code
}

// found notes that a job was charged before.
func (t *till) found(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.charges[id]++
}

// seen returns the calls in the order in which they were read.
func (t *till) seen() []arrival {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.calls)
}

// charged returns how often a job was charged.
func (t *till) charged(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.charges[id]
}

// most returns the most calls in any window of that length.
func (t *till) most(window time.Duration) int {
	calls := t.seen()
	slices.SortFunc(calls, func(a, b arrival) int { return a.at.Compare(b.at) })
	most, from := 0, 0
	for i, a := range calls {
		for a.at.Sub(calls[from].at) >= window {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

type stampKey struct{}

// stampedListener accepts connections that record when a request arrived, by the kernel's stamp, which does not depend on how busy the machine is.
type stampedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l stampedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stampedConn{Conn: c, read: c.(interface {
		ReadStamped(p []byte) (int, time.Time, error)
	}).ReadStamped}, nil
}

type stampedConn struct {
	net.Conn
	read func(p []byte) (int, time.Time, error)
	mu   sync.Mutex
	at   time.Time
}

// Read implements net.Conn.
func (c *stampedConn) Read(p []byte) (int, error) {
	n, at, err := c.read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.at = at
	}
	return n, err
}

// take returns when the present request arrived. Requests are short: one read has all of one.
func (c *stampedConn) take() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}
