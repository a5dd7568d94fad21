package provider

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A limit by path counts each path separately, and a limit by a header each of its values, beside the limit of all calls.
func TestLimitsByPathAndByHeader(t *testing.T) {
	t.Parallel()
	p := New(Config{Limits: []Limit{{N: 5, Window: time.Hour}, {N: 2, Window: time.Hour, By: ByPath}, {N: 3, Window: time.Hour, By: ByHeader + "merchant"}}})
	for i, c := range []struct {
		path, merchant string
		status         int
	}{
		{"/a", "x", 200}, {"/a", "x", 200}, {"/a", "y", 429}, // the path's
		{"/b", "x", 200}, {"/c", "x", 429}, // the merchant's
		{"/c", "y", 200}, {"/d", "", 200}, {"/e", "z", 429}, // all
	} {
		r := httptest.NewRequest(http.MethodPost, c.path, nil)
		r.Header.Set("Merchant", c.merchant)
		r.Header.Set("Idempotency-Key", string(rune('a'+i)))
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("call %d: %d, want %d", i+1, w.Code, c.status)
		}
	}
	s := p.Stats()
	if got, want := s.MaxInWindow, []int{8, 3, 4}; got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("at most %v in a window, want %v", got, want)
	}
	if got := s.Limits; got[1] != "2/h by path" || got[2] != "3/h by header:merchant" {
		t.Errorf("limits %q", got)
	}
}

// Calls that a limit by something has dropped do not change its verdicts.
func TestLimitsByPathStayBounded(t *testing.T) {
	t.Parallel()
	limit := Limit{N: 3, Window: 10, By: ByPath}
	whole, bounded := callLog{keep: maxCalls}, callLog{keep: maxCalls}
	draw := rand.New(rand.NewPCG(1, 1))
	at, over := int64(0), 0
	for range 5 * apartSlack {
		at += draw.Int64N(6)
		stamp := at - draw.Int64N(4)
		c := &call{at: stamp, common: map[string]string{ByPath: "/a"}}
		bounded.arrive(c, []Limit{limit}, false)
		plain := &call{at: stamp}
		whole.arrive(plain, []Limit{{N: limit.N, Window: limit.Window}}, false)
		if c.over != plain.over {
			t.Fatalf("at %d: over %v, want %v", stamp, c.over, plain.over)
		}
		if c.over {
			over++
		}
	}
	if n := len(bounded.apart[apart{limit, "/a"}]); n > 2*limit.N+apartSlack+1 || over == 0 {
		t.Errorf("%d are kept, %d were over", n, over)
	}
}

func TestParseLimitBy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Limit{
		"path=25/s":                  {N: 25, Window: time.Second, By: ByPath},
		"header:Stripe-Account=5/2s": {N: 5, Window: 2 * time.Second, By: "header:Stripe-Account"},
		"path":                       {}, "25/s": {}, "query=25/s": {}, "header:=25/s": {}, "path=x": {},
	} {
		got, err := ParseLimitBy(text)
		if got != want || (err == nil) != (want.N > 0) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if err == nil {
			if again, err := ParseLimit(got.String()); again != got || err != nil {
				t.Errorf("%q is read again as %+v, %v", got.String(), again, err)
			}
		}
	}
}
