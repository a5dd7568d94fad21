package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// headers returns the status of a call and two of its headers.
func (r rig) headers(key string) string {
	r.t.Helper()
	status, header, _ := r.do("POST", "/v1/charges", key, "{}")
	return fmt.Sprint(status, " ", header.Get("Retry-After"), " ", header.Get("Idempotent-Replayed"))
}

// TestASaved500 checks that a saved 500 is repeated although the gateway works again. Without save_500 the key is still unused.
func TestASaved500(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		cfg     Config
		want    []string // of the first call, of two more when all is well, and of one with a new key
		charged int
	}{
		{"saved", Config{Fail: 1, Save500: true}, []string{"500  ", "500  true", "500  true", "200  "}, 1},
		{"saved, unmarked", Config{Fail: 1, Save500: true, NoMarks: true}, []string{"500  ", "500  ", "500  ", "200  "}, 1},
		{"saved and charged", Config{Fail: 1, Save500: true, Charge500: true}, []string{"500  ", "500  true", "500  true", "200  "}, 2},
		{"not saved", Config{Fail: 1}, []string{"500  ", "200  ", "200  true", "200  "}, 2},
		{"charged, not saved", Config{Fail: 1, Charge500: true}, []string{"500  ", "200  ", "200  true", "200  "}, 3},
		{"saved of an incident", Config{Incident: Incident{Status: 500}, Save500: true}, []string{"500  ", "500  true", "500  true", "200  "}, 1},
		{"saved, without keys", Config{Fail: 1, Save500: true, NoKeys: true}, []string{"500  ", "200  ", "200  ", "200  "}, 3},
	} {
		r := setup(t, tc.cfg)
		got := []string{r.headers("job")}
		well := tc.cfg
		well.Fail, well.Incident = 0, Incident{}
		r.Set(well)
		got = append(got, r.headers("job"), r.headers("job"), r.headers("job~2"))
		if s := r.Stats(); !slices.Equal(got, tc.want) || s.Charged != tc.charged {
			t.Errorf("%s: answers %q, want %q; %d charged, want %d", tc.name, got, tc.want, s.Charged, tc.charged)
		}
	}
}

// TestAFateIsTheSameWheneverTheJobIsCalled checks that each call of a job meets its fate, with any key, and that other jobs don't.
func TestAFateIsTheSameWheneverTheJobIsCalled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fate    string
		save    bool
		want    []string // of two calls with a key and one with another
		charged int
	}{
		{"id=bad,status=500", false, []string{"500  ", "500  ", "500  "}, 0},
		{"id=bad,status=500", true, []string{"500  ", "500  true", "500  "}, 0},
		{"id=bad,status=500,charge=true", true, []string{"500  ", "500  true", "500  "}, 2},
		{"id=bad,status=500,charge", false, []string{"500  ", "500  ", "500  "}, 3},
		{"id=bad,status=403", true, []string{"403  ", "403  ", "403  "}, 0},
		{"id=bad,status=429", true, []string{"429  ", "429  ", "429  "}, 0},
		{"id=bad,status=503,retry_after=900ms", true, []string{"503 1 ", "503 1 ", "503 1 "}, 0},
		{"id=bad,status=402", false, []string{"402  ", "402  true", "402  "}, 0},
		{"id=bad,status=303", false, []string{"303  ", "303  true", "303  "}, 2},
		{"id=bad,status=303,charge=false", false, []string{"303  ", "303  true", "303  "}, 0},
		{"id=ba*,status=400", false, []string{"400  ", "400  ", "400  "}, 0},
		{"share=100%,status=200", false, []string{"200  ", "200  true", "200  "}, 2},
	} {
		f, err := ParseFate(tc.fate)
		if err != nil {
			t.Fatal(err)
		}
		r := setup(t, Config{Fates: []Fate{f}, Save500: tc.save})
		got := []string{r.headers("bad"), r.headers("bad"), r.headers("bad~2")}
		s := r.Stats()
		if !slices.Equal(got, tc.want) || s.Charged != tc.charged || s.Calls != 3 || s.FirstCalls != 1 {
			t.Errorf("%s, saved %v: answers %q, want %q; %+v", tc.fate, tc.save, got, tc.want, s)
		}
		if want := []FateStats{{f.String(), 3, 1}}; !slices.Equal(s.Fates, want) {
			t.Errorf("%s: the stats say %+v, want %+v", tc.fate, s.Fates, want)
		}
		if got := r.charge("good"); got != 200 {
			t.Errorf("%s: another job is answered %d", tc.fate, got)
		}
	}
}

// TestAFatedHangNeverAnswers checks that a call that hangs by its fate gets no answer, and charges once for each key.
func TestAFatedHangNeverAnswers(t *testing.T) {
	t.Parallel()
	for _, charge := range []bool{true, false} {
		r := setup(t, Config{Fates: []Fate{{ID: "bad", Charge: charge}}})
		for n := range 2 {
			ctx, hangUp := context.WithCancel(t.Context())
			req, _ := http.NewRequestWithContext(ctx, "POST", r.url, strings.NewReader("{}"))
			req.Header.Set("Idempotency-Key", "bad")
			done := make(chan error)
			go func() {
				_, err := http.DefaultTransport.RoundTrip(req)
				done <- err
			}()
			waitFor(t, func() bool { return r.Stats().Hung == n+1 })
			hangUp()
			if <-done == nil {
				t.Error("a call that hangs was answered")
			}
		}
		if s := r.Stats(); s.Charged != map[bool]int{true: 1}[charge] || s.ChargedTwice != 0 {
			t.Errorf("charge %v: %+v", charge, s)
		}
		r.Set(Config{})
		if got := r.charge("bad"); got != 200 {
			t.Errorf("charge %v: when the fate is lifted, its key is told %d", charge, got)
		}
	}
}

// TestAShareOfJobsIsDrawnByTheirIDs checks that a share has the same jobs everywhere, others for each status, and about the right size.
func TestAShareOfJobsIsDrawnByTheirIDs(t *testing.T) {
	t.Parallel()
	const jobs = 10000
	for _, share := range []float64{0, 0.05, 0.6, 1} {
		hit, both := 0, 0
		for i := range jobs {
			id := fmt.Sprintf("inv-%05d", i)
			if (Fate{Share: share, Status: 500}).Fits(id) {
				hit++
				if (Fate{Share: share, Status: 403}).Fits(id) {
					both++
				}
			}
		}
		if want := share * jobs; float64(hit) < want*0.9 || float64(hit) > want*1.1 {
			t.Errorf("a share of %v of %d jobs is %d", share, jobs, hit)
		}
		if want := share * share * jobs; float64(both) < want*0.5 || float64(both) > want*1.5 {
			t.Errorf("shares of %v for two statuses have %d jobs in common, want about %v", share, both, want)
		}
	}
	var fixed []int // the hash is part of the promise: another process, another day
	for i := range 40 {
		if (Fate{Share: 0.2, Status: 500}).Fits(fmt.Sprintf("inv-%05d", i)) {
			fixed = append(fixed, i)
		}
	}
	if want := []int{6, 9, 37, 38}; !slices.Equal(fixed, want) {
		t.Errorf("a fifth of forty jobs are %v, want %v", fixed, want)
	}
}

func TestTheFirstFateThatFitsHolds(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{Fates: []Fate{{ID: "a", Status: 403}, {ID: "b", Status: 200, Charge: true}, {Share: 1, Status: 500}}})
	if got := []int{r.charge("a"), r.charge("b"), r.charge("c")}; !slices.Equal(got, []int{403, 200, 500}) {
		t.Errorf("answers %v", got)
	}
}

// TestAnIncidentMeetsAShareOfAllCalls checks that an incident meets its share of all calls, with any key, and that it ends.
func TestAnIncidentMeetsAShareOfAllCalls(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{})
	r.charge("paid")
	for _, tc := range []struct{ settings, job, paid string }{
		{`{"incident":{"status":429,"retry_after":"3s"}}`, "429 3 ", "429 3 "},
		{`{"incident":{"status":403}}`, "403  ", "403  "},
		{`{"incident":{"status":500}}`, "500  ", "200  true"}, // what was paid is told from the key
		{`{"incident":null}`, "200  ", "200  true"},
	} {
		if status, _, body := r.do("PATCH", "/settings", "", tc.settings); status != 200 {
			t.Fatalf("%s: %d %s", tc.settings, status, body)
		}
		if job, paid := r.headers("job"), r.headers("paid"); job != tc.job || paid != tc.paid {
			t.Errorf("%s: a new job is answered %q, one that was paid %q; want %q and %q", tc.settings, job, paid, tc.job, tc.paid)
		}
	}
	r.Set(Config{Incident: Incident{Status: 503, Share: 0.3}, Seed: 7})
	before := r.Stats().Down
	for i := range 200 {
		r.charge(fmt.Sprint("many-", i))
	}
	if met := r.Stats().Down - before; met < 30 || met > 90 {
		t.Errorf("30 %% of 200 calls are %d", met)
	}
}

// TestFatesChangeWhileItRuns changes fates of a running provider. What GET /settings returns can be sent back unchanged.
func TestFatesChangeWhileItRuns(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{})
	told := `{"save_500":true,"charge_500":true,"marks":false,"incident":{"status":503,"retry_after":"2s","share":"30%"},
		"fates":[{"share":"5%","status":500},{"id":"inv-3","status":503,"retry_after":"1s"},{"id":"inv-4","hang":true},{"id":"inv-5","hang":true,"charge":false}]}`
	status, _, first := r.do("PATCH", "/settings", "", told)
	if status != 200 {
		t.Fatalf("%d %s", status, first)
	}
	want := `"save_500":true,"charge_500":true,"marks":false,"fates":[{"share":0.05,"status":500,"charge":false},{"id":"inv-3","status":503,"retry_after":"1s","charge":false},` +
		`{"id":"inv-4","hang":true,"charge":true},{"id":"inv-5","hang":true,"charge":false}],"incident":{"share":0.3,"status":503,"retry_after":"2s"}}`
	if !strings.HasSuffix(strings.TrimSpace(first), want) {
		t.Errorf("GET /settings says %s, want at its end %s", first, want)
	}
	r.Set(Config{})
	if _, _, again := r.do("PUT", "/settings", "", first); again != first {
		t.Errorf("put back as it was, it is %s", again)
	}
	r.do("PATCH", "/settings", "", `{"down":true}`)
	if c := r.Config(); len(c.Fates) != 4 || c.Incident.Status != 503 {
		t.Errorf("a change of something else made it %+v", c)
	}
	r.do("PATCH", "/settings", "", `{"fates":[],"incident":null}`)
	if c := r.Config(); len(c.Fates) != 0 || c.Incident.Status != 0 {
		t.Errorf("taken away, they are %+v", c)
	}
	for _, bad := range []string{
		`{"fates":{}}`, `{"fates":[{}]}`, `{"fates":[{"status":500}]}`, `{"fates":[{"id":"a"}]}`, `{"fates":[{"id":"a","share":1,"status":500}]}`,
		`{"fates":[{"id":"a","status":500,"hang":true}]}`, `{"fates":[{"id":"a","status":99}]}`, `{"fates":[{"id":"a","state":500}]}`,
		`{"incident":{}}`, `{"incident":{"status":200}}`, `{"incident":{"status":500,"id":"a"}}`, `{"incident":{"status":500,"share":0}}`, `{"incident":7}`,
	} {
		if status, _, body := r.do("PATCH", "/settings", "", bad); status != 400 || !strings.Contains(body, "write") && !strings.Contains(body, "jobs have fates") {
			t.Errorf("PATCH /settings %s: %d %q", bad, status, body)
		}
	}
}

func TestAFateAsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Fate{
		"share=5%,status=500":                   {Share: 0.05, Status: 500},
		"id=inv-00003,status=403":               {ID: "inv-00003", Status: 403},
		"id=a,status=503,retry_after=1s":        {ID: "a", Status: 503, RetryAfter: time.Second},
		"id=a,status=303":                       {ID: "a", Status: 303, Charge: true},
		"id=old-*,hang":                         {ID: "old-*", Charge: true},
		"share=0.1%,hang,charge=false":          {Share: 0.001},
		"id=a,status=500,charge=true":           {ID: "a", Status: 500, Charge: true},
		"id=a,status=303,charge=false":          {ID: "a", Status: 303},
		"id=a,status=429,retry_after=1m30s":     {ID: "a", Status: 429, RetryAfter: 90 * time.Second},
		"id=a,status=502,retry_after=1s,charge": {ID: "a", Status: 502, RetryAfter: time.Second, Charge: true},
	} {
		got, err := ParseFate(text)
		if again, _ := ParseFate(got.String()); err != nil || got != want || again != want {
			t.Errorf("ParseFate(%q) = %+v, %v; its text %q is %+v", text, got, err, got.String(), again)
		}
	}
	for text, says := range map[string]string{
		"":                               "write id, share",
		"status=500":                     "share=5%",
		"id=a":                           "status=500 or hang",
		"id=a,share=5%,status=500":       "share=5%",
		"share=200%,status=500":          "not a share",
		"id=a,status=5OO":                "invalid syntax",
		"id=a,status=100":                "write 200 to 599",
		"id=a,status=500,retry_after=1":  "not a time",
		"id=a,hang=maybe":                "true or false",
		"id=a,status=500,charge=perhaps": "true or false",
		"id=a,status=500,fate=bad":       "write id, share",
	} {
		if _, err := ParseFate(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseFate(%q) says %v, want %q", text, err, says)
		}
	}
}

// TestCallsSayWhichWereTheFirst checks that only the first call of a job is marked as first. A repeat, or a replay with a new key, is not.
func TestCallsSayWhichWereTheFirst(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{Incident: Incident{Status: 429}})
	r.charge("a")
	r.Set(Config{})
	for _, key := range []string{"a", "b", "a~2", "c"} {
		r.charge(key)
	}
	_, _, text := r.do("GET", "/calls", "", "")
	var got []string
	for line := range strings.Lines(text) {
		var c CallLine
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(c.Key, c.First))
	}
	if want := []string{"atrue", "afalse", "btrue", "a~2false", "ctrue"}; !slices.Equal(got, want) {
		t.Errorf("GET /calls: %v, want %v", got, want)
	}
	if s := r.Stats(); s.FirstCalls != 3 || s.Calls != 5 {
		t.Errorf("stats: %+v", s)
	}
}
