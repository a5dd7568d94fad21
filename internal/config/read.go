package config

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

// config reads the whole file.
func (r *reader) config(body ast.Node) *Config {
	c := Default()
	c.File = r.file
	wait, common, own, members := int64(c.WaitReplicas), layers{}, node{}, node{}
	r.object(node{tree: body},
		field{"redis", func(n node) { r.redis(n, c) }},
		field{"wait_replicas", r.count(&wait, 0, maxReplicas)},
		field{"listen", r.word(&c.Listen, checkListen)},
		field{"token", func(n node) { n.optional = !r.opt.Secrets; r.secret(&c.Token, checkToken)(n) }},
		field{"token_previous", func(n node) { n.optional = !r.opt.Secrets; r.secret(&c.TokenPrevious, checkToken)(n) }},
		field{"tokens", func(n node) { c.Tokens = r.tokens(n) }},
		field{"oidc", func(n node) { c.OIDC = r.oidc(n) }},
		field{"cookie_secure", r.truth(&c.CookieSecure)},
		field{"encryption", func(n node) { c.Encryption = r.encryption(n) }},
		field{"dedupe_scope", r.word((*string)(&c.DedupeScope), choice("a scope of ids", string(DedupeGateway), string(DedupeAll)))},
		field{"defaults", func(n node) { common.defaults = r.layer(n, false) }},
		field{"templates", func(n node) { common.templates = r.templates(n) }},
		field{"gateways", func(n node) { own = n }},
		field{"merchants", func(n node) { members = n }},
	)
	c.Gateways = r.all(own, members, common)
	for i := range c.Gateways {
		c.Gateways[i].Encryption = c.Encryption
	}
	r.checkTokens("tokens", c)
	r.checkOIDC(c)
	c.ListenWritten = r.written("listen")
	c.WaitReplicas = int(wait)
	if c.WaitReplicas > 0 && c.Redis == embedded {
		r.clash("wait_replicas", "redis", "the embedded Redis has no replicas to wait for: take wait_replicas out, or name a Redis server")
	}
	if c.TokenPrevious != "" && !r.written("token") {
		r.clash("token_previous", "token", "there is no token that it was the one before: write token, or take token_previous out")
	}
	return c
}

// redis reads an address, or a mapping with address and TLS settings.
func (r *reader) redis(n node, c *Config) {
	address := r.secret(&c.Redis, checkRedis)
	at := n.path
	switch n.tree.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		at = n.path + ".url"
		name := field{"server_name", r.word(&c.RedisTLS.ServerName, checkServerName)}
		r.object(n, field{"url", address}, field{"tls", func(n node) { r.tls(n, &c.RedisTLS, name) }})
		if !r.written(at) {
			r.missing(at, "write where Redis is, like rediss://redis.example:6379/0")
		}
	default:
		address(n)
	}
	c.RedisAt = r.places[at]
	if c.RedisTLS != (TLS{}) && !r.faulted[at] && !overTLS(c.Redis.Reveal()) {
		r.fault(n.path+".tls", "the address of Redis is one without TLS: take tls out, or write rediss://, or tls=true for sentinels and clusters")
	}
}

var gatewayName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

func checkGatewayName(name string) string {
	if gatewayName.MatchString(name) {
		return ""
	}
	return fmt.Sprintf("%q is not a gateway's name: use lower-case letters, digits, _ and -, starting with a letter or digit", name)
}

// all reads the gateways in the file, and those of the merchants files that it names.
func (r *reader) all(own, merchants node, l layers) []Gateway {
	var all []Gateway
	if own.path != "" {
		all = r.gateways(own, l)
	}
	if merchants.path != "" {
		all = append(all, r.merchants(merchants, l)...)
	}
	switch {
	case merchants.path != "":
		if len(all) == 0 && len(r.faults) == 0 {
			r.fault(merchants.path, "there are no gateways: a merchants file needs a line for each below the names of its columns")
		}
	case own.path == "":
		r.missing("gateways", "name at least one gateway, with its request.url and leak.limits")
	case len(pairs(own.tree)) == 0 && !r.faulted[own.path]:
		r.fault(own.path, "there are no gateways: name at least one, with its request.url and leak.limits")
	}
	r.checkShared(all)
	return all
}

func (r *reader) gateways(n node, l layers) []Gateway {
	var all []Gateway
	for _, e := range r.entries(n) {
		if rule := checkGatewayName(e.key); rule != "" {
			r.places[e.value.path] = e.at
			r.fault(e.value.path, "%s", rule)
			continue
		}
		tree, pack := r.layered(e, l)
		e.value.tree, r.subject = tree, &subject{name: e.key, pack: pack}
		g := r.gateway(e.value)
		r.subject = nil
		g.Name, g.At = e.key, e.at
		all = append(all, g)
	}
	return all
}

func (r *reader) gateway(n node) Gateway {
	if r.opt.written != nil {
		r.opt.written(r.subject.name, r.writtenOut(node{tree: n.tree}))
	}
	g, routes, lanes, faults := DefaultGateway(), node{}, node{}, len(r.faults)
	g.Pack = r.subject.pack.name
	r.scopes = nil
	r.object(n,
		field{"like", func(node) {}}, // read by layered
		field{"request", func(n node) { r.request(n, &g.Request) }},
		field{"answers", func(n node) { r.answers(n, &g.Answers) }},
		field{"lookup", func(n node) { g.Lookup = r.lookup(n) }},
		field{"routes", func(n node) { routes = n }},
		field{"lanes", func(n node) { lanes = n }},
		field{"priority", func(n node) { g.Priority = r.priority(n) }},
		field{"reference", r.word(&g.Reference, checkReference)},
		field{"amount", func(n node) { r.amount(n, &g.Amount) }},
		field{"map", func(n node) { g.Map = r.mapping(n) }},
		field{"leak", func(n node) { r.leak(n, &g.Leak) }},
		field{"admission", func(n node) { r.admission(n, &g.Admission) }},
		field{"retry", func(n node) { r.retry(n, &g.Retry) }},
		field{"circuit", func(n node) { r.circuit(n, &g.Circuit) }},
		field{"hold", func(n node) { r.hold(n, &g.Hold) }},
		field{"batch_brake", func(n node) { r.batchBrake(n, &g.BatchBrake) }},
		field{"brakes", func(n node) { r.brakes(n, &g.Brakes) }},
		field{"approval", func(n node) { r.approval(n, &g.Approval) }},
		field{"parked", func(n node) { r.parked(n, &g.Parked) }},
		field{"pan", func(n node) { r.pan(n, &g.Pan) }},
		field{"erase", func(n node) { r.erase(n, &g.EraseAfter) }},
		field{"outcomes", func(n node) { g.Outcomes = r.outcomes(n) }},
		field{"replay", func(n node) { r.replay(n, &g) }},
		field{"dedupe", r.duration(&g.Dedupe, time.Second)},
	)
	if lanes.path != "" {
		g.Lanes = r.lanes(lanes, &g.Request)
	}
	if g.Map != nil && !r.written(n.path+".amount.required") {
		g.Amount.Required = g.Amount.Field != ""
	}
	saved := g.Answers.Saved
	g.Request.KeyForgets = saved[Class2xx] == job.SavedNot || saved[Class5xx] == job.SavedNot || saved[Class5xx] == job.SavedUnknown
	g.Routed = routes.path != "" && !r.written(n.path+".request.url")
	r.check(n.path, &g)
	r.checkScopes(&g, routes.path != "" || r.ofARoute)
	g.Admission.fill(g.Leak)
	if routes.path != "" {
		g.Routes = r.routes(routes, n, faults)
	}
	if g.Routed { // its settings of these are for its routes
		g.Lookup = nil
	}
	return g
}

func (r *reader) parked(n node, p *Parked) {
	r.object(n,
		field{"most", r.count(&p.Most, 0, job.MaxCount)},
		field{"bytes", r.size(&p.Bytes)},
	)
}

// replay reads one word for jobs parked as rejected, or one for each of two reasons.
func (r *reader) replay(n node, g *Gateway) {
	rejected := r.word((*string)(&g.Replay), choice("a way of replay", string(ReplayAuto), string(ReplayManual)))
	switch n.tree.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		r.object(n, field{"rejected", rejected},
			field{"exhausted", r.word((*string)(&g.Exhausted), choice("a way of replay", string(ReplayManual), string(ReplayRecovery)))})
	default:
		rejected(n)
	}
}

func (r *reader) request(n node, q *Request) {
	optional := func(read func(node)) func(node) {
		return func(n node) { n.optional = !r.opt.Secrets; read(n) }
	}
	header := q.Key.Name
	r.object(n,
		field{"url", optional(func(n node) { r.url(n, q) })},
		field{"method", optional(r.word(&q.Method, checkMethod))},
		field{"encoding", optional(r.word(&q.Encoding, choice("an encoding", EncodingJSON, EncodingForm)))},
		field{"strip", func(n node) { r.strip(n, q) }},
		field{"headers", optional(func(n node) { r.headers(n, q) })},
		field{"idempotency_header", r.word(&header, checkKeyHeader)},
		field{"idempotency_prefix", r.prefix(q)},
		field{"key", func(n node) { r.key(n, q) }},
		field{"key_lifetime", r.duration(&q.KeyLifetime, 0)},
		field{"timeout", optional(r.duration(&q.Timeout, time.Millisecond))},
		field{"tls", optional(func(n node) { r.tls(n, &q.TLS) })},
		field{"proxy", optional(r.secret(&q.Proxy, checkProxy))},
		field{"sign", optional(func(n node) { r.sign(n, &q.Sign) })},
		field{"oauth2", optional(func(n node) { r.oauth2(n, &q.OAuth2) })},
	)
	if r.written(join(n.path, "idempotency_header")) {
		r.keyHeader(n.path, q, header)
	}
}

// url reads the URL. It may contain a password or a key, so only its form in the file is ever shown.
func (r *reader) url(n node, q *Request) {
	var text string
	r.word(&text, checkURL)(n)
	if raw, ok := r.filled(n); ok {
		q.URLText = RedactURL(raw)
	}
	q.URL = Secret(text)
}

func (r *reader) amount(n node, a *Amount) {
	r.object(n,
		field{"field", r.word(&a.Field, checkField)},
		field{"currency", r.word(&a.Currency, checkField)},
		field{"least", r.count(&a.Least, -MostAmount, MostAmount)},
		field{"most", r.count(&a.Most, -MostAmount, MostAmount)},
		field{"required", r.truth(&a.Required)},
	)
	if a.Field == "" {
		r.missing(n.path+".field", "name the payload's field that holds the amount in minor units")
	}
}

func (r *reader) leak(n node, l *Leak) {
	r.object(n,
		field{"limits", r.limits(&l.Limits)},
		field{"burst", r.count(&l.Burst, 1, job.MaxCount)},
		field{"jitter", r.duration(&l.Jitter, 0)},
		field{"max_in_flight", r.count(&l.MaxInFlight, 0, job.MaxCount)},
	)
}

func (r *reader) admission(n node, a *Admission) {
	r.object(n,
		field{"algorithm", r.word(&a.Algorithm, checkAlgorithm)},
		field{"limits", r.limits(&a.Limits)},
		field{"burst", r.count(&a.Burst, 1, job.MaxCount)},
		field{"precision", r.count(&a.Precision, 1, maxPrecision)},
	)
}

func (r *reader) retry(n node, t *Retry) {
	attempts := int64(t.Attempts)
	r.object(n,
		field{"attempts", r.count(&attempts, 1, math.MaxInt32)},
		field{"first", r.duration(&t.First, time.Millisecond)},
		field{"max", r.duration(&t.Max, time.Millisecond)},
	)
	t.Attempts = int(attempts)
}

// fill derives missing values from the leak: its limits, and a burst of 60 s' worth of the tightest one, which
// has the lowest long-run rate. The burst is at least the smallest N of the leak's limits, because it is also
// the largest cost of a job. A window has no separate burst: it grants what its smallest limit grants.
func (a *Admission) fill(leak Leak) {
	a.given = a.Burst
	if len(a.Limits) == 0 {
		a.Limits, a.Follows = slices.Clone(leak.Limits), true
	}
	if !job.Bursts(a.Algorithm) && len(a.Limits) > 0 {
		a.Burst = smallest(a.Limits).N
		return
	}
	if a.Burst > 0 || len(a.Limits) == 0 || len(leak.Limits) == 0 {
		return
	}
	worth := int64(math.MaxInt64)
	for _, l := range a.Limits {
		worth = min(worth, minuteOf(l))
	}
	a.Burst = max(1, worth, smallest(leak.Limits).N)
}

// maxReplicas is the most replicas to wait for: more than anyone runs.
const maxReplicas = 16

// maxPrecision is the most parts of a window: each is read and written for every chunk of jobs.
const maxPrecision = 1000

// minuteOf returns how many units a limit grants in 60 s, rounded down and at most job.MaxCount.
func minuteOf(l job.Limit) int64 {
	exact := new(big.Int).Mul(big.NewInt(l.N), big.NewInt(int64(time.Minute)))
	exact.Quo(exact, big.NewInt(int64(l.Window)))
	if !exact.IsInt64() {
		return job.MaxCount
	}
	return min(exact.Int64(), job.MaxCount)
}

func smallest(limits []job.Limit) job.Limit {
	return slices.MinFunc(limits, func(a, b job.Limit) int { return cmp.Compare(a.N, b.N) })
}

// whenDone is the value of erase.payload with which nothing is erased after the end of a job.
const whenDone = "when_done"

// erase reads when personal data is erased.
func (r *reader) erase(n node, after *time.Duration) {
	r.object(n, field{"payload", func(n node) {
		text, ok := r.text(n)
		switch {
		case !ok:
		case text == whenDone:
			*after = 0
		case text == "" || text[0] < '0' || text[0] > '9':
			r.wrong(n, "does not say when payloads are erased: write "+whenDone+", or how long after that all else goes, like 720h")
		default:
			r.duration(after, time.Second)(n)
		}
	}})
}

// pan reads what to do with card numbers.
func (r *reader) pan(n node, c *job.CardRule) {
	r.object(n,
		field{"then", r.word((*string)(&c.Then), choice("a way", string(job.CardsRefuse), string(job.CardsMask), string(job.CardsAllow)))},
		field{"allow", func(n node) {
			if list, ok := n.tree.(*ast.SequenceNode); ok && len(list.Values) == 0 {
				return // it resets what a template sets
			}
			c.Allow = r.words(n, "name the payload's fields that may have a card number, like [token]", checkField)
		}},
	)
	if c.Then == job.CardsAllow && len(c.Allow) > 0 {
		r.clash(n.path+".allow", n.path+".then", "with then: allow every field may have a card number: take allow out, or then")
	}
}
