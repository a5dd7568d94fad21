package oidc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"spillway/internal/roles"
	"spillway/internal/testkit"
)

const secret = "canary-client-secret-of-a-test"

// provider returns the provider as a dispatcher sees it, without a limit on how often the keys are read.
func provider(i *testkit.Issuer, with ...func(*Config)) *Provider {
	cfg := Config{Issuer: i.URL, ClientID: "spillway", ClientSecret: secret, Redirect: "http://127.0.0.1/login/callback", DeviceClientID: "spillway-cli", Audiences: []string{"payments-api"}, Name: "email",
		Rules: []roles.Rule{{Claim: "groups", Is: "payments-ops", Role: roles.Operator, Gateways: []string{"stripe"}}, {Claim: "groups", Is: "payments-eu", Role: roles.Operator, Gateways: []string{"adyen"}},
			{Claim: "groups", Is: "support", Role: roles.Viewer}, {Claim: "realm_access.roles", Is: "root", Role: roles.Admin}}}
	for _, f := range with {
		f(&cfg)
	}
	p := New(cfg)
	p.gets.every = 0
	return p
}

func kindOf(t *testing.T, err error) Kind {
	t.Helper()
	e, is := errors.AsType[*Error](err)
	if !is {
		t.Fatalf("%T: %v", err, err)
	}
	if strings.Contains(e.Error(), secret) || strings.Contains(e.Error(), "eyJ") || e.Message == "" {
		t.Errorf("the error says %q", e)
	}
	return e.Kind
}

// The first rule that fits gives the role, and those with the same role add their gateways.
func TestClaimsBecomeARole(t *testing.T) {
	t.Parallel()
	i := testkit.NewIssuer(t)
	p := provider(i)
	for name, c := range map[string]struct {
		claims   map[string]any
		role     roles.Role
		gateways []string
	}{
		"one group":                         {map[string]any{"groups": []string{"x", "payments-ops"}}, roles.Operator, []string{"stripe"}},
		"a group of another gateway":        {map[string]any{"groups": []string{"payments-eu"}}, roles.Operator, []string{"adyen"}},
		"two groups of one role":            {map[string]any{"groups": []string{"payments-eu", "payments-ops"}}, roles.Operator, []string{"adyen", "stripe"}},
		"a text in the place of a list":     {map[string]any{"groups": "support"}, roles.Viewer, nil},
		"a later rule has no say":           {map[string]any{"groups": []string{"support", "payments-ops"}}, roles.Operator, []string{"stripe"}},
		"a way with dots":                   {map[string]any{"realm_access": map[string]any{"roles": []string{"root"}}}, roles.Admin, nil},
		"a claim whose name has a dot":      {map[string]any{"realm_access.roles": []string{"root"}}, roles.Admin, nil},
		"for the command line":              {map[string]any{"aud": "spillway-cli", "groups": []string{"support"}}, roles.Viewer, nil},
		"an access token for the API":       {map[string]any{"aud": []string{"other", "payments-api"}, "groups": []string{"support"}}, roles.Viewer, nil},
		"the clocks differ by 20 s":         {map[string]any{"exp": time.Now().Add(-20 * time.Second).Unix(), "groups": []string{"support"}}, roles.Viewer, nil},
		"the clock there is 20 s ahead":     {map[string]any{"iat": time.Now().Add(20 * time.Second).Unix(), "nbf": time.Now().Add(20 * time.Second).Unix(), "groups": []string{"support"}}, roles.Viewer, nil},
		"nothing of it has a role":          {map[string]any{"groups": []string{"payments", "payments-ops2", "Support"}}, "", nil},
		"the claim is missing":              {nil, "", nil},
		"the claim is not a list of texts":  {map[string]any{"groups": []any{1, nil, map[string]any{"support": true}}}, "", nil},
		"a value has the other in it":       {map[string]any{"groups": "payments-ops support"}, "", nil},
		"the way with dots leads nowhere":   {map[string]any{"realm_access": "roles"}, "", nil},
		"a claim of that name is elsewhere": {map[string]any{"other": map[string]any{"groups": []string{"support"}}}, "", nil},
	} {
		l, err := p.Check(t.Context(), i.Token(c.claims))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		who, err := p.Who(l)
		if c.role == "" {
			if kindOf(t, err) != Nobody || !strings.Contains(err.Error(), "ann@example.com") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || who.Role != c.role || !slices.Equal(who.Gateways, c.gateways) || who.Name != "ann@example.com" || who.Proof != roles.ByLogin {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
}

// The trail has the name, so nobody may have another person's name, or none.
func TestALoginHasANameOrIsNobodys(t *testing.T) {
	t.Parallel()
	i := testkit.NewIssuer(t)
	p := provider(i)
	if l, err := p.Check(t.Context(), i.Token(map[string]any{"email": "Ann@Example.com"})); err != nil || l.Name != "ann@example.com" {
		t.Errorf("%+v, %v", l, err)
	}
	for name, claims := range map[string]map[string]any{
		"none": {"email": nil}, "empty": {"email": ""}, "a list": {"email": []string{"a@x", "b@x"}}, "not verified": {"email_verified": false}, "not verified, as a text": {"email_verified": "false"}, "not verified, in a spelling of its own": {"email_verified": "False"},
		"not verified, as a number": {"email_verified": 0}, "verified by a list": {"email_verified": []bool{true}},
		"another script": {"email": "аnn@example.com"}, "a space": {"email": "ann @example.com"}, "a new line": {"email": "ann@example.com\nbob"}, "long": {"email": strings.Repeat("a", 101)},
	} {
		if _, err := p.Check(t.Context(), i.Token(claims)); kindOf(t, err) != Nobody {
			t.Errorf("%s: %v", name, err)
		}
	}
	by := provider(i, func(c *Config) { c.Name = "preferred_username" })
	if l, err := by.Check(t.Context(), i.Token(map[string]any{"preferred_username": "ann", "email_verified": false})); err != nil || l.Name != "ann" {
		t.Errorf("%+v, %v", l, err)
	}
}

// An address that the provider has not verified gives nobody a role.
func TestAnAddressThatIsNotVerifiedGivesNoRole(t *testing.T) {
	t.Parallel()
	i := testkit.NewIssuer(t)
	p := provider(i, func(c *Config) {
		c.Name, c.Rules = "sub", []roles.Rule{{Claim: "email", Is: "boss@example.com", Role: roles.Admin}}
	})
	for verified, want := range map[any]bool{true: true, nil: true, "true": true, "True": true, false: false, "false": false, "FALSE": false, "no": false, "": false, 0: false} {
		l, err := p.Check(t.Context(), i.Token(map[string]any{"email": "boss@example.com", "email_verified": verified}))
		if err != nil {
			t.Fatal(err)
		}
		if who, _ := p.Who(l); (who.Role == roles.Admin) != want {
			t.Errorf("verified %v: %+v", verified, who)
		}
	}
}

// none returns a token that says that it needs no signature.
func none(claims map[string]any) string {
	body, _ := json.Marshal(claims)
	b := base64.RawURLEncoding
	return b.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + b.EncodeToString(body) + "."
}

// Only tokens are accepted that the provider signed, with a key pair, for this dispatcher, and for the present time.
func TestForgedTokensAreNotTaken(t *testing.T) {
	t.Parallel()
	i, other := testkit.NewIssuer(t), testkit.NewIssuer(t)
	p := provider(i)
	fine := i.Token(map[string]any{"groups": []string{"support"}})
	if _, err := p.Check(t.Context(), fine); err != nil {
		t.Fatal(err)
	}
	public, err := i.Public().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(fine, ".")
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	raised := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(body), "support", "payments-ops", 1)))
	as := func(with map[string]any) string {
		return other.Token(i.Claims(with)) // the key of another, under the name of ours
	}
	for name, token := range map[string]string{
		"another audience":          i.Token(map[string]any{"aud": "payroll"}),
		"no audience":               i.Token(map[string]any{"aud": nil}),
		"an empty audience":         i.Token(map[string]any{"aud": ""}),
		"another issuer":            i.Token(map[string]any{"iss": other.URL}),
		"an issuer with a slash":    i.Token(map[string]any{"iss": i.URL + "/"}),
		"another provider's":        other.Token(nil),
		"signed by another":         as(nil),
		"no signature":              none(i.Claims(nil)),
		"a signature cut off":       parts[0] + "." + parts[1] + ".",
		"claims changed":            parts[0] + "." + raised + "." + parts[2],
		"HS256 with the public key": i.Signed(jose.SigningKey{Algorithm: jose.HS256, Key: public}, i.Claims(nil)),
		"HS256 with the secret":     i.Signed(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(secret + secret)}, i.Claims(nil)),
		"it has ended":              i.Token(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}),
		"it never ends":             i.Token(map[string]any{"exp": nil}),
		"it has not begun":          i.Token(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		"nobody's":                  i.Token(map[string]any{"sub": nil}),
		"no token":                  "eyJ.x.y",
		"claims that are no object": parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`"x"`)) + "." + parts[2],
	} {
		if l, err := p.Check(t.Context(), token); err == nil || kindOf(t, err) != Wrong {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}

// The provider may change its keys at any time: the next token makes the dispatcher read them again. A provider that is away does not stop tokens whose key is known.
func TestKeysChangeAndTheProviderGoesAway(t *testing.T) {
	t.Parallel()
	i := testkit.NewIssuer(t)
	var gone atomic.Bool
	var asked atomic.Int64
	i.Asked = func(w http.ResponseWriter, _ *http.Request) bool {
		asked.Add(1)
		if gone.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
		return gone.Load()
	}
	p := provider(i)
	gone.Store(true)
	if _, err := p.Check(t.Context(), i.Token(nil)); kindOf(t, err) != Away {
		t.Errorf("a provider that is away when the first comes: %v", err)
	}
	gone.Store(false)
	old := i.Token(nil)
	if _, err := p.Check(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	// A check that comes as the keys have just been read may still get those from before the change.
	becomes := func(p *Provider, what, token string, is func(error) bool) {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, what, func() bool {
			_, err := p.Check(t.Context(), token)
			return is(err)
		})
	}
	away := func(err error) bool { return err != nil && kindOf(t, err) == Away }
	i.Rotate("k2")
	becomes(p, "the new key to be known", i.Token(nil), func(err error) bool { return err == nil })
	becomes(p, "the old key to be taken back", old, func(err error) bool { return err != nil && kindOf(t, err) == Wrong })
	gone.Store(true)
	known := i.Token(nil)
	if _, err := p.Check(t.Context(), known); err != nil {
		t.Errorf("a known key while the provider is away: %v", err)
	}
	i.Rotate("k3")
	becomes(p, "a new key to be asked for while the provider is away", i.Token(nil), away)
	// After an hour the keys are read again, and the earlier ones are still valid while the provider is away.
	later := time.Now().Add(keysFor + time.Second)
	p.now = func() time.Time { return later }
	long := map[string]any{"exp": later.Add(time.Hour).Unix()}
	gone.Store(false)
	fresh := i.Token(long)
	becomes(p, "the keys to be read again", fresh, func(err error) bool { return err == nil })
	testkit.Eventually(t, 10*time.Second, "the description to be read again", func() bool { return p.found.Load().before != nil })
	gone.Store(true)
	if _, err := p.Check(t.Context(), fresh); err != nil {
		t.Errorf("the keys of an hour ago while the provider is away: %v", err)
	}
	// Tokens with made-up keys do not cause a request to the provider each.
	gone.Store(false)
	calm := provider(i)
	calm.gets.every = time.Hour
	if _, err := calm.Check(t.Context(), i.Token(long)); err != nil {
		t.Fatal(err)
	}
	before := asked.Load()
	i.Rotate("made-up")
	becomes(calm, "the keys to be read again too soon", i.Token(long), away)
	for range 50 {
		i.Rotate("made-up")
		if _, err := calm.Check(t.Context(), i.Token(long)); kindOf(t, err) != Away {
			t.Fatal(err)
		}
	}
	if n := asked.Load() - before; n != 0 {
		t.Errorf("asked %d times", n)
	}
}

// A description that sends people elsewhere, or is another provider's, is refused.
func TestADescriptionIsHeldAgainstTheAddress(t *testing.T) {
	t.Parallel()
	i, other := testkit.NewIssuer(t), testkit.NewIssuer(t)
	other.Asked = func(w http.ResponseWriter, _ *http.Request) bool {
		other.Describe(w, i.URL)
		return true
	}
	i.Asked = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusFound)
		return true
	}
	if err := provider(i).Reach(t.Context()); kindOf(t, err) != Away {
		t.Error(err)
	}
	i.Asked = func(w http.ResponseWriter, _ *http.Request) bool {
		i.Describe(w, other.URL)
		return true
	}
	if err := provider(i).Reach(t.Context()); kindOf(t, err) != Away {
		t.Error(err)
	}
}

// come returns the request with which a browser returns from the provider.
func come(t *testing.T, to, code string) (url.Values, string) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if q.Get("code_challenge_method") != "S256" || q.Get("state") == "" || q.Get("nonce") == "" || q.Get("response_type") != "code" || strings.Contains(to, secret) {
		t.Errorf("a browser is sent to %s", to)
	}
	return url.Values{"state": {q.Get("state")}, "code": {code}}, q.Get("nonce")
}

// A browser that was sent to the provider returns with a code, which is valid for one login of this browser.
func TestABrowserLogsIn(t *testing.T) {
	t.Parallel()
	i := testkit.NewIssuer(t)
	p, twin := provider(i), provider(i)
	begin := func() (url.Values, string, string) {
		to, kept, err := p.Begin(t.Context(), "/batches")
		if err != nil {
			t.Fatal(err)
		}
		q, nonce := come(t, to, "c1")
		return q, nonce, kept
	}
	support := func(nonce string) map[string]any {
		return map[string]any{"nonce": nonce, "groups": []string{"support"}}
	}
	q, nonce, kept := begin()
	i.Grant(support(nonce))
	l, next, err := twin.Finish(t.Context(), q, kept) // another dispatcher of the same configuration
	if err != nil || next != "/batches" || l.Name != "ann@example.com" {
		t.Fatalf("%+v, %q, %v", l, next, err)
	}
	if i.Form().Get("code_verifier") == "" || i.Form().Get("code") != "c1" {
		t.Errorf("the code was sent with %v", i.Form())
	}
	_, _, stale := begin()
	for name, c := range map[string]struct {
		query  func(url.Values)
		kept   string
		claims map[string]any
		at     *Provider
		kind   Kind
	}{
		"no state":             {query: func(q url.Values) { q.Del("state") }, kind: Wrong},
		"another state":        {query: func(q url.Values) { q.Set("state", "x") }, kind: Wrong},
		"the provider says no": {query: func(q url.Values) { q.Set("error", "access_denied") }, kind: Wrong},
		"another provider":     {query: func(q url.Values) { q.Set("iss", "https://evil.example") }, kind: Wrong},
		"nothing was kept":     {kept: "-", kind: Wrong},
		"of another login":     {kept: stale, kind: Wrong},
		"the nonce of another": {claims: map[string]any{"nonce": nonce}, kind: Wrong},
		"no nonce":             {claims: map[string]any{"nonce": nil}, kind: Wrong},
		"for the command line": {claims: map[string]any{"aud": "spillway-cli"}, kind: Wrong},
		"for another party":    {claims: map[string]any{"azp": "payroll"}, kind: Wrong},
		"it has ended":         {claims: map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, kind: Wrong},
		"no role":              {claims: map[string]any{"groups": []string{"x"}}, kind: Nobody},
		"another secret there": {at: provider(i, func(c *Config) { c.ClientSecret = "another-secret-of-a-test" }), kind: Wrong},
		"no browser logs in":   {at: provider(i, func(c *Config) { c.Redirect = "" }), kind: Wrong},
	} {
		q, nonce, kept := begin()
		claims := support(nonce)
		for k, v := range c.claims {
			claims[k] = v
		}
		i.Grant(claims)
		if c.query != nil {
			c.query(q)
		}
		if c.kept != "" {
			kept = c.kept
		}
		at := p
		if c.at != nil {
			at = c.at
		}
		if l, _, err := at.Finish(t.Context(), q, kept); err == nil || kindOf(t, err) != c.kind {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	q, nonce, kept = begin()
	i.Grant(support(nonce))
	late := provider(i)
	late.now = func() time.Time { return time.Now().Add(LoginFor + time.Second) }
	if _, _, err := late.Finish(t.Context(), q, kept); kindOf(t, err) != Wrong {
		t.Errorf("later than %s: %v", LoginFor, err)
	}
	if _, _, err := provider(i, func(c *Config) { c.ClientSecret = "" }).Begin(t.Context(), "/"); kindOf(t, err) != Wrong {
		t.Error(err)
	}
}

// A sealed session is valid only for its own session and this configuration's secret, and it expires. A role that was removed is gone with the next request.
func TestASessionIsSealed(t *testing.T) {
	t.Parallel()
	i := testkit.NewIssuer(t)
	p := provider(i)
	l := Login{Name: "ann", Has: []Has{{"groups", "support"}}, Ends: time.Now().Add(time.Hour)}
	text := p.Seal("s1", l)
	if got, is := provider(i).Open("s1", text); !is || got.Name != "ann" || !got.Ends.Equal(l.Ends) {
		t.Fatalf("another dispatcher: %+v, %t", got, is)
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || strings.Contains(string(raw), "ann") {
		t.Errorf("%q, %v", raw, err)
	}
	for at := range raw {
		changed := slices.Clone(raw)
		changed[at] ^= 1
		if got, is := p.Open("s1", base64.RawURLEncoding.EncodeToString(changed)); is {
			t.Fatalf("byte %d changed: %+v", at, got)
		}
	}
	for name, is := range map[string]bool{
		"another session": second(p.Open("s2", text)), "nothing": second(p.Open("s1", "")), "cut off": second(p.Open("s1", text[:20])),
		"another secret":   second(provider(i, func(c *Config) { c.ClientSecret = "another-secret-of-a-test" }).Open("s1", text)),
		"another client":   second(provider(i, func(c *Config) { c.ClientID = "other" }).Open("s1", text)),
		"another provider": second(provider(testkit.NewIssuer(t)).Open("s1", text)),
		"another name":     second(provider(i, func(c *Config) { c.Name = "sub" }).Open("s1", text)),
		"no secret":        second(provider(i, func(c *Config) { c.ClientSecret = "" }).Open("s1", text)),
		"a begun login":    second(p.Open("s1", p.seal(sealedBegun, marshal(l)))),
	} {
		if is {
			t.Errorf("%s opens it", name)
		}
	}
	if _, err := provider(i, func(c *Config) { c.Rules = c.Rules[:2] }).Who(l); kindOf(t, err) != Nobody {
		t.Errorf("the rule is gone: %v", err)
	}
	p.now = func() time.Time { return l.Ends.Add(skew + time.Second) }
	if _, err := p.Who(l); kindOf(t, err) != Wrong {
		t.Errorf("it has ended: %v", err)
	}
}

func second[T any](_ T, is bool) bool { return is }

// A provider that hangs delays a login by a few seconds, and never for longer than the caller waits.
func TestAProviderHangs(t *testing.T) {
	t.Parallel()
	i := testkit.NewIssuer(t)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	i.Asked = func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-over:
		case <-r.Context().Done():
		}
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	p := provider(i)
	if _, err := p.Check(ctx, i.Token(nil)); kindOf(t, err) != Away {
		t.Error(err)
	}
}

// An answer without an end is read up to a bound, whichever it is.
func TestAProviderSendsWithoutEnd(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/.well-known/openid-configuration", "/keys"} {
		i := testkit.NewIssuer(t)
		sent, over := atomic.Int64{}, make(chan struct{}, 1)
		i.Asked = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != path {
				return false
			}
			defer func() { over <- struct{}{} }()
			w.Header().Set("Content-Type", "application/json")
			for text := []byte(strings.Repeat("[", 1<<16)); sent.Load() < 256<<20; sent.Add(int64(len(text))) {
				if _, err := w.Write(text); err != nil {
					break
				}
			}
			return true
		}
		if _, err := provider(i).Check(t.Context(), i.Token(nil)); kindOf(t, err) != Away {
			t.Errorf("%s: %v", path, err)
		}
		<-over
		if n := sent.Load(); n > 64<<20 { // a part of it is in buffers
			t.Errorf("%s: %d bytes were read", path, n)
		}
		device := Device{Issuer: i.URL, ClientID: "spillway-cli"}
		if path != "/keys" {
			sent.Store(0)
			if _, err := device.Begin(t.Context()); kindOf(t, err) != Away {
				t.Errorf("on the command line: %v", err)
			}
			<-over
			if n := sent.Load(); n > 64<<20 {
				t.Errorf("on the command line: %d bytes were read", n)
			}
		}
	}
}
