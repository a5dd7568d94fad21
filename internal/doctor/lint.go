package doctor

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/roles"
)

const (
	// burstMost is how long a burst of admission may keep the gateway busy before it counts as far above the
	// leak rate.
	burstMost = 10 * time.Minute
	// timeoutMost is a timeout beyond which a dead worker's job waits very long, and a stop, too.
	timeoutMost = 90 * time.Second
	// timeoutLeast is a timeout below which a gateway's answers may be cut off.
	timeoutLeast = time.Second
	// commonCall is a plausible duration of a payment call, if nothing better is known.
	commonCall = 500 * time.Millisecond
)

// lint warns of settings that are valid but unwise. connect is how long a connection took; zero if there was
// none.
func (x *examination) lint(g config.Gateway, connect time.Duration) {
	var found []Check
	for _, rule := range []func(config.Gateway) []Check{lintAdmission, lintJitter, lintTimes, lintKeys, lintHold, lintTokenURL, lintPack} {
		found = append(found, rule(g)...)
	}
	found = append(found, lintWays(g)...)
	found = append(found, x.lintApproval(g)...)
	found = append(found, x.lintFlight(g, connect)...)
	found = append(found, x.lintTLS(g.Name, g.Request.TLS)...)
	if len(found) == 0 {
		x.add(ok("configuration", g.Name, "nothing unwise in it"))
	}
	for _, c := range found {
		c.Message = fmt.Sprintf("%s:%d: %s", g.At.File, g.At.Line, c.Message)
		x.add(c)
	}
}

// lintWays checks each way in which the gateway is called. Problems of the gateway's own keys are reported
// once.
func lintWays(g config.Gateway) (found []Check) {
	for name, as := range g.Ways() {
		for _, rule := range []func(config.Gateway) []Check{lintLookup, lintAnswers, lintNewKey, lintURL, lintHeaders} {
			for _, c := range rule(as) {
				if name != "" && !slices.Contains(found, c) {
					c.Message = fmt.Sprintf("route %s: %s", name, c.Message)
				}
				if !slices.Contains(found, c) {
					found = append(found, c)
				}
			}
		}
	}
	return found
}

// holdMost is the longest reasonable pause that one answer can ask for.
const holdMost = time.Hour

func lintHold(g config.Gateway) []Check {
	if g.Hold.Max <= holdMost {
		return nil
	}
	return []Check{warn("hold", g.Name, "make hold.max shorter, unless the gateway means such times",
		"one answer with a mistaken Retry-After stops all calls for up to %s (hold.max)", job.FormatDuration(g.Hold.Max))}
}

func lintAdmission(g config.Gateway) (found []Check) {
	const name = "admission"
	leak, in := rate(g.Leak.Limits), rate(g.Admission.Limits)
	if in > leak*1.000001 {
		found = append(found, warn(name, g.Name, "give admission.limits no more than leak.limits, or leave them out",
			"admission lets in %s, but only %s leave: the queue grows without bound, and jobs wait longer and longer", perSecond(in), perSecond(leak)))
	}
	busy := time.Duration(float64(g.Admission.Burst) / leak * float64(time.Second))
	if busy > burstMost && g.Admission.Burst > largest(g.Leak.Limits) {
		found = append(found, warn(name, g.Name, "make admission.burst smaller; what it has no room for is parked, and goes in by itself in order",
			"a burst of %d keeps the gateway busy for %s: a job that comes after it waits so long in the queue", g.Admission.Burst, busy.Round(time.Second)))
	}
	return found
}

func lintJitter(g config.Gateway) []Check {
	const name = "jitter"
	shortest := g.Leak.Limits[0].Window
	for _, l := range g.Leak.Limits {
		shortest = min(shortest, l.Window)
	}
	switch {
	case g.Leak.Jitter == 0:
		return []Check{warn(name, g.Name, "give leak.jitter what the delay to the gateway varies by; 5ms is the default",
			"leak.jitter is 0: a call that is a moment quicker on the way than the one before it can be over the limit")}
	case g.Leak.Jitter > shortest/4:
		return []Check{warn(name, g.Name, "measure the variation of the delay, and give leak.jitter that; or ask for a limit with a longer window",
			"leak.jitter of %s is more than a quarter of the shortest window, %s: the rate is at most %.0f %% of the limit",
			job.FormatDuration(g.Leak.Jitter), job.FormatDuration(shortest), 100*shortest.Seconds()/(shortest+g.Leak.Jitter).Seconds())}
	}
	return nil
}

func lintTimes(g config.Gateway) (found []Check) {
	const name = "timeout"
	t := g.Request.Timeout
	switch {
	case t > timeoutMost:
		found = append(found, warn(name, g.Name, "make request.timeout what the gateway really needs; give the service more time to stop (TimeoutStopSec)",
			"a time-out of %s: a job whose worker died is looked at only after that, and a stop may take as long, where systemd kills after 90s and Kubernetes after 30s", job.FormatDuration(t)))
	case t < timeoutLeast:
		found = append(found, warn(name, g.Name, "make request.timeout longer: 30s is the default",
			"a time-out of %s cuts off calls that the gateway may still carry out: their outcome is unknown", job.FormatDuration(t)))
	}
	return found
}

func lintKeys(g config.Gateway) []Check {
	const name = "idempotency"
	asks := g.Own().Lookup.For(false) != nil // then look-ups tell the outcome of such a call
	switch {
	case !g.Request.Key.Any() && !asks:
		return []Check{warn(name, g.Name, "if the gateway can be asked what became of a payment, write lookup; if it does have idempotency keys, name its header in request.idempotency_header",
			"no idempotency header and no lookup: every call that is cut off is parked as unknown_outcome, for a person to look up")}
	case g.Request.KeyForgets && !asks:
		return []Check{warn(name, g.Name, "if the gateway can be asked what became of a payment, write lookup; else look parked jobs up there, and see the caveats of its pack, if it has one",
			"the gateway makes a call again whose answer was a failure (answers.saved), so every call that is cut off is parked as unknown_outcome, for a person to look up")}
	case g.Dedupe < g.Request.KeyLifetime:
		return []Check{warn(name, g.Name, "make dedupe at least as long as request.key_lifetime",
			"a job is forgotten %s after it is done (dedupe), before the gateway forgets its key (%s): enqueued again in between, it would be answered with the old answer",
			job.FormatDuration(g.Dedupe), job.FormatDuration(g.Request.KeyLifetime))}
	}
	return nil
}

// lintLookup warns of a not_done that any error would match.
func lintLookup(g config.Gateway) []Check {
	for _, accepted := range []bool{false, true} {
		q := g.Lookup.For(accepted)
		if q == nil {
			continue
		}
		for _, r := range q.Answers {
			if r.Then == job.LookNotDone && !r.Absent && len(r.Header)+len(r.Body) == 0 {
				return []Check{warn("lookup", g.Name, "write a header or a field of the answer's body beside the status, as in {status: 404, body: {code: not_found}, then: not_done}",
					"a look-up takes a status alone for not_done, and a wrong URL may get that status too: a payment that was made would be made again")}
			}
		}
	}
	return nil
}

// lintAnswers warns if nothing is configured but that a 2xx is a payment: many gateways decline with a 2xx,
// too.
func lintAnswers(g config.Gateway) []Check {
	if a := g.Answers; a.Profile != config.ProfileDefault || len(a.Rules) > 0 || len(a.DoneNeeds) > 0 {
		return nil
	}
	return []Check{warn("answers", g.Name, "say what a payment's answer has, like answers: {done_needs: {resultCode: Authorised}}; or, if any 200 is one, answers: [{status: 200, then: done}]",
		"every 2xx counts as paid, by the default profile, and some gateways say no with a 200: what they declined is booked as done")}
}

var credential = regexp.MustCompile(`(?i)[?&][^=&#]*(?:pass|secret|token|key|auth|signature)[^=&#]*=[^&#]`)

func lintURL(g config.Gateway) (found []Check) {
	const name = "url"
	raw := g.Request.URL.Reveal()
	if raw == "" {
		raw = g.Request.URLText
	}
	scheme, rest, _ := strings.Cut(raw, "://")
	host, _, _ := strings.Cut(rest, "/")
	if strings.EqualFold(scheme, "http") && !loopback(host) {
		found = append(found, warn(name, g.Name, "write https://", "calls go to %s unencrypted: anyone on the way can read payments and secrets, and change them",
			bare(host)))
	}
	if credential.MatchString(raw) {
		found = append(found, warn(name, g.Name, `put it into a header, from a variable: headers: {Authorization: "Bearer ${KEY}"}`,
			"the url holds what looks like a credential: proxies and the gateway's own log write urls down"))
	}
	return found
}

// almost matches what may have been meant as a placeholder.
var almost = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_.]*\}`)

// lintHeaders warns of headers with a word in braces, which is sent literally.
func lintHeaders(g config.Gateway) (found []Check) {
	for _, name := range slices.Sorted(maps.Keys(g.Request.Headers)) {
		if almost.MatchString(g.Request.Headers[name].Reveal()) {
			found = append(found, warn("headers", g.Name, "write {payload.FIELD} or {id}, if it is to be filled in for each job",
				"the header %s has a word in braces, and goes out with the braces", name))
		}
	}
	return found
}

func lintTokenURL(g config.Gateway) []Check {
	scheme, rest, _ := strings.Cut(g.Request.OAuth2.TokenURL.Reveal(), "://")
	host, _, _ := strings.Cut(rest, "/")
	if !g.Request.OAuth2.On || scheme != "http" || loopback(host) {
		return nil
	}
	return []Check{warn("url", g.Name, "write https:// in request.oauth2.token_url",
		"the client secret goes to %s unencrypted: anyone on the way can call the gateway in your name", bare(host))}
}

// bare returns the host without user and password.
func bare(host string) string { return host[strings.LastIndex(host, "@")+1:] }

func loopback(hostport string) bool {
	host := bare(hostport)
	if u, err := url.Parse("http://" + host); err == nil {
		host = u.Hostname()
	}
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// lintFlight compares the cap on calls in flight with what the rate needs: as many as start during one call.
func (x *examination) lintFlight(g config.Gateway, connect time.Duration) []Check {
	most := g.Leak.MaxInFlight
	if most == 0 {
		return nil
	}
	leak := rate(g.Leak.Limits)
	enough := time.Duration(float64(most) / leak * float64(time.Second))
	lasts, how := commonCall, "payments often take"
	if measured := x.latency[g.Name]; measured > 0 {
		lasts, how = measured, "its latest calls took (median)"
	} else if connect > lasts {
		lasts, how = connect, "a connection alone took"
	}
	if enough >= lasts {
		return nil
	}
	return []Check{warn("in_flight", g.Name, fmt.Sprintf("raise leak.max_in_flight to %.0f, or take it out", math.Ceil(leak*lasts.Seconds())),
		"%d calls at once reach %s only while each takes no more than %s; %s %s (and may take %s)", most, perSecond(leak), short(enough), how, short(lasts), job.FormatDuration(g.Request.Timeout))}
}

// rate returns the long-run rate of limits, in calls a second.
func rate(limits []job.Limit) float64 {
	least := math.Inf(1)
	for _, l := range limits {
		least = min(least, float64(l.N)/l.Window.Seconds())
	}
	return least
}

// largest returns the largest number of calls in a limit: a burst of that size is never far above.
func largest(limits []job.Limit) (n int64) {
	for _, l := range limits {
		n = max(n, l.N)
	}
	return n
}

// perSecond formats a rate for people, in a unit that gives a number of reasonable size.
func perSecond(r float64) string {
	switch {
	case r >= 1:
		return fmt.Sprintf("%.4g/s", r)
	case r*60 >= 1:
		return fmt.Sprintf("%.4g/m", r*60)
	case r*3600 >= 1:
		return fmt.Sprintf("%.4g/h", r*3600)
	}
	return fmt.Sprintf("%.4g/d", r*86400)
}

// lintApproval warns of approvals that are not effective.
func (x *examination) lintApproval(g config.Gateway) (found []Check) {
	if len(g.Approval.BatchOver) == 0 && !g.Approval.OfActs() {
		return nil
	}
	may := func(t config.Token) bool {
		return slices.Contains(roles.Approve.Roles(), t.Role) && (len(t.Gateways) == 0 || slices.Contains(t.Gateways, g.Name))
	}
	rule := func(r config.OIDCRole) bool {
		return slices.Contains(roles.Approve.Roles(), r.Role) && (len(r.Gateways) == 0 || slices.Contains(r.Gateways, g.Name))
	}
	logins := x.p.Config.OIDC
	if !slices.ContainsFunc(x.p.Config.Tokens, may) && (logins == nil || !slices.ContainsFunc(logins.Roles, rule)) {
		found = append(found, warn("approval", g.Name, "write tokens: [{name: …, role: approver, secret: …}], or give a group of oidc.roles the role approver",
			"approvals are required, but nobody can approve: no token and no rule of oidc has a role that may"))
	}
	if x.p.DB == nil {
		found = append(found, warn("approval", g.Name, "give operators tokens and --server, and Redis's password to programs alone",
			"anyone who runs this has Redis's password, and can forge an approval: approvals do not bind them"))
	}
	return found
}

// sensitive matches header names that identify the caller.
var sensitive = regexp.MustCompile(`(?i)auth|key|token|secret|account|merchant`)

// lintNewKey warns of rules that ask for the next key where there are no keys.
func lintNewKey(g config.Gateway) []Check {
	asks := slices.ContainsFunc(g.Answers.Rules, func(r job.Rule) bool { return r.Then == job.VerdictNewKey })
	if g.Request.Key.Any() || !asks {
		return nil
	}
	return []Check{warn("answers", g.Name, "write then: refused; or name the header of the gateway's idempotency keys in request.idempotency_header",
		"a rule says then: new_key, and the gateway has no idempotency keys: there is no key to take another one of, so the job is parked as refused")}
}

// sharedAccounts warns of gateways with the same address and credentials while ids are unique only within a
// gateway: a file sent to both is charged twice.
func (x *examination) sharedAccounts() {
	if x.p.Config.DedupeScope == config.DedupeAll {
		return
	}
	same := map[string][]string{}
	var order []string
	for _, g := range x.p.Gateways {
		account := account(g)
		if account == "" {
			continue
		}
		if same[account] == nil {
			order = append(order, account)
		}
		same[account] = append(same[account], g.Name)
	}
	for _, account := range order {
		if names := same[account]; len(names) > 1 {
			x.add(warn("dedupe_scope", names[0], "write dedupe_scope: all; or make them one gateway",
				"the gateways %s call the same address with the same credentials, and an id is known to each of them alone: a job sent to two of them is called twice", named3(names)))
		}
	}
}

// named3 names the first few.
func named3(names []string) string {
	const few = 3
	text := strings.Join(names[:min(few, len(names))], ", ")
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// account returns a text that is equal for gateways that use the same account; empty if unknown.
func account(g config.Gateway) string {
	var whose []string
	for _, name := range slices.Sorted(maps.Keys(g.Request.Headers)) {
		if value := g.Request.Headers[name].Reveal(); sensitive.MatchString(name) && value != "" {
			whose = append(whose, strings.ToLower(name)+": "+value)
		}
	}
	if o := g.Request.OAuth2; o.On && o.ClientID != "" {
		whose = append(whose, "oauth2 "+o.ClientID+" "+o.ClientSecret.Reveal())
	}
	if secret := g.Request.Sign.Secret.Reveal() + g.Request.Sign.PrivateKey.Reveal(); secret != "" {
		whose = append(whose, "sign "+secret)
	}
	url := g.Request.URL.Reveal()
	if len(whose) == 0 || url == "" || len(g.Request.JobHeaders) > 0 { // which may name another account for each job
		return ""
	}
	return strings.Join(append(whose, url), "\n")
}
