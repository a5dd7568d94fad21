// Package config reads the configuration file. It is strict, and reports every fault with a message for a person.
//
// Load reads the YAML tree, fills in the defaults and checks that the values are consistent. It reports everything that
// is wrong (an unknown key, a bad value, an unset variable, a contradiction) at once, with file, line, field and a hint.
// The package imports no step of the pipeline: cmd passes the values on.
package config

import (
	"slices"
	"time"

	"spillway/internal/job"
)

// Config is a configuration file with its defaults filled in.
type Config struct {
	// File is the file's name as given.
	File string
	// Redis is the address of Redis: one of the URL forms, or "embedded". It may contain a password: show it with
	// RedactURL. Default redis://127.0.0.1:6379/0.
	Redis Secret
	// RedisAt is the address's position in the file. Zero: not in the file, or overridden by a flag.
	RedisAt Position
	// RedisTLS is the TLS configuration for a Redis address that uses TLS. The zero TLS: the system's roots, and no
	// client certificate.
	RedisTLS TLS
	// WaitReplicas is how many of Redis's replicas must have a job before it is reported as accepted, and an attempt
	// before its call; 0 to 16. Default 0: no waiting. If set higher than the number of replicas, nothing is accepted or
	// called.
	WaitReplicas int
	// Listen is the address of run's HTTP server, host:port. Empty disables it. Default 127.0.0.1:9400.
	Listen string
	// ListenWritten says that the file sets listen: unlike the default, such an address must not move to another port.
	ListenWritten bool
	// Token is what callers of the HTTP server must present. Empty = none, which is allowed only on loopback.
	Token Secret
	// TokenPrevious is accepted as well as Token, while callers change from one to the other. Empty = none.
	TokenPrevious Secret
	// Tokens have names and roles. Empty = only Token.
	Tokens []Token
	// CookieSecure restricts the console's cookie to TLS. Default false: only if the request says that it came over TLS.
	CookieSecure bool
	// OIDC says which logins with an OpenID provider are accepted. Nil (default): none.
	OIDC *OIDC
	// Encryption says how payloads are sealed. Nil = they are not sealed.
	Encryption *Encryption
	// DedupeScope says where an id must be unknown for a job to be accepted. Default DedupeGateway.
	DedupeScope DedupeScope
	// Gateways are in file order; at least one.
	Gateways []Gateway
	// SecretFiles are the files named by ${file:PATH}.
	SecretFiles []string
}

// Names returns the gateways' names in file order.
func (c *Config) Names() []string {
	names := make([]string, len(c.Gateways))
	for i, g := range c.Gateways {
		names[i] = g.Name
	}
	return names
}

// Gateway returns the gateway with that name, and whether the file has it.
func (c *Config) Gateway(name string) (Gateway, bool) {
	i := slices.IndexFunc(c.Gateways, func(g Gateway) bool { return g.Name == name })
	if i < 0 {
		return Gateway{}, false
	}
	return c.Gateways[i], true
}

// Position is a position in a file; lines and columns count from 1.
type Position struct {
	File         string
	Line, Column int
}

// Gateway is a payment provider's endpoint, and the asynq queue of the same name.
type Gateway struct {
	// Name is 1 or more of a-z, 0-9, _ and -, and begins with a letter or digit.
	Name string
	// At is where the file names it, for messages.
	At Position
	// Pack is the name of the pack that it uses. Empty = none.
	Pack string
	// Encryption is the configuration's, the same for each gateway.
	Encryption *Encryption
	// Request says how to call it.
	Request Request
	// Answers says what its answers mean.
	Answers Answers
	// Lookup says how to look up payments. nil (default) = no look-ups.
	Lookup *Lookup
	// Reference is the dotted path of the gateway's own reference in the body of an answer that means done. Default id;
	// empty = no reference is stored.
	Reference string
	// Routes are its named requests, in file order; at most 32. Default none.
	Routes []Route
	// Routed says that it has no URL of its own: each of its jobs has a route, by default the first.
	Routed bool
	// Priority defines priority classes. nil (default): jobs are called in order.
	Priority *Priority
	// Lanes divides its jobs into lanes. nil (default): no lanes.
	Lanes *Lanes
	// Amount says where payloads have their money. The zero Amount: nowhere, and there are no sums of money.
	Amount Amount
	// Map says how a record of a billing file becomes a payload. Nil (default) = the record is the payload.
	Map *job.Map
	// Leak is the leak rate: the limits that the pacer keeps towards the gateway.
	Leak Leak
	// Admission is the check before a job enters the queue.
	Admission Admission
	// Retry says how often and when a job is retried.
	Retry Retry
	// Circuit configures the circuit breaker. Default 5 failures in a row, or 50 % of at least 20 calls within 10 s; Max
	// 5 s.
	Circuit job.Circuit
	// Hold bounds how long a gateway is held.
	Hold Hold
	// BatchBrake says when a batch stops itself. Default 90 % of its first 50 calls refused.
	BatchBrake job.Brake
	// Brakes bound the money that calls move. Default none.
	Brakes job.Brakes
	// Approval says what needs a second person's approval. The zero Approval (default): nothing.
	Approval job.Approval
	// Parked bounds how many jobs producers can have parked.
	Parked Parked
	// Pan says what to do with card numbers in input, and in the gateway's answers. The zero CardRule: refuse them.
	Pan job.CardRule
	// EraseAfter is how long after the end of a job the remaining personal data is erased; at least 1 s. Zero (default):
	// never. Payload and error are always erased when the job is over.
	EraseAfter time.Duration
	// Outcomes configures the outcome feed. Nil (default): no feed.
	Outcomes *Outcomes
	// Replay says whether jobs parked as rejected are admitted by themselves. Default ReplayAuto.
	Replay Replay
	// Exhausted says whether jobs parked as exhausted are replayed by themselves (ReplayRecovery) or not. Default
	// ReplayManual.
	Exhausted Replay
	// Dedupe is how long a job's id stays known after it is done or discarded; at least 1 s. Default 30 d. If a producer
	// can send a file again after a longer time, jobs are charged twice.
	Dedupe time.Duration
}

// Request is one call to a gateway.
type Request struct {
	// URL may contain {id} and {payload.FIELD} (dotted paths) after its host, to be escaped. It may contain a secret. It
	// is empty only if Options.Secrets is off and a variable in it is not set.
	URL Secret
	// URLText is the URL as in the file, without its password, for display.
	URLText string
	// Method is GET, HEAD, POST, PUT, PATCH or DELETE. Default POST.
	Method string
	// Encoding of the payload: EncodingJSON (default) or EncodingForm.
	Encoding string
	// Strip names payload fields (dotted paths) that are left out of the body. Default none.
	Strip []string
	// Headers are sent with every call, with their names as written. A value is empty only if Options.Secrets is off and
	// a variable in it is not set.
	Headers map[string]Secret
	// JobHeaders are the headers whose values contain {id} or {payload.FIELD}: their parts, in order.
	JobHeaders map[string][]HeaderPart
	// Key says where idempotency keys are sent and how they are written. Without a Name the gateway has none. Default
	// the header Idempotency-Key with the job's id. A prefix has at most 40 visible ASCII characters.
	Key job.KeyShape
	// KeyPrefixWritten says that the file sets Key.Prefix, even if to "".
	KeyPrefixWritten bool
	// KeyLifetime is how long the gateway remembers a key; 0 exactly if it has none. Default 5 min, less than any
	// gateway is known to keep. If set longer than the gateway's own, a call with a forgotten key charges twice.
	// KeyCovers returns what may be relied on.
	KeyLifetime time.Duration
	// KeyForgets says that the gateway executes a repeated call whose first answer was a failure, despite the same key:
	// then no repeated call is safe.
	KeyForgets bool
	// Timeout bounds one call, from its slot to the end of its answer; above 0. Default 30 s.
	Timeout time.Duration
	// TLS is the TLS configuration for an https URL. The zero TLS: the system's roots, and no client certificate.
	TLS TLS
	// Proxy is the URL of the HTTP proxy for calls. Empty = none; the environment's proxy is ignored. It may contain a
	// password.
	Proxy Secret
	// Sign says how calls are signed. The zero Sign: not at all.
	Sign Sign
	// OAuth2 says how to get the calls' access token. If not On, they carry none.
	OAuth2 OAuth2
}

// HeaderPart is a part of a header's value. Exactly one of its fields is set.
type HeaderPart struct {
	// Text is text in the file.
	Text Secret
	// Variable is the value of a variable or file. It is empty only if Options.Secrets is off and it is not set.
	Variable Secret
	// Place is a placeholder: id or payload.FIELD.
	Place string
}

// The encodings of a payload.
const (
	EncodingJSON = "json"
	EncodingForm = "form"
)

// Answers says what a gateway's answers mean.
type Answers struct {
	// Profile is a built-in table, ProfileDefault or ProfileStripe. Default ProfileDefault.
	Profile string
	// Rules precede the profile: the first that matches decides. A pack's rules follow the file's.
	Rules []job.Rule
	// DoneNeeds maps dotted paths in the body of a 2xx answer to accepted values, as texts. If one does not match, the
	// outcome is unknown, unless a rule decides. nil = a 2xx is enough.
	DoneNeeds map[string][]string
	// Matches maps dotted paths in the body of an answer that means done, accepted or new_key to the payload field, or
	// job.OwnID, of the same value. If they differ, the answer is about another payment. nil = nothing is compared.
	Matches map[string]string
	// Saved is what repeated calls get after a first answer of a status class ("2xx", "4xx", "5xx"). For a missing
	// class, the profile decides.
	Saved map[string]job.Saved
}

// The built-in profiles of answers.
const (
	ProfileDefault = "default"
	ProfileStripe  = "stripe"
)

// MostAmount is the largest whole number, in minor units, that every JSON reader parses exactly (RFC 7493).
const MostAmount = 1<<53 - 1

// Amount says where payloads have their money, in minor units.
type Amount struct {
	// Field is the dotted path of the amount. Empty = no sums of money.
	Field string
	// Currency is the dotted path of the currency code. Empty = one currency without a name.
	Currency string
	// Least is the smallest amount of a job, in minor units. Default 1: a payment of nothing or less is refused.
	Least int64
	// Most is the largest amount of a job, in minor units. Default MostAmount. A small value catches typing mistakes.
	Most int64
	// Required makes an amount mandatory, and a currency if Currency is set. Default false; true if the gateway has a
	// Map.
	Required bool
}

// Leak is what the pacer keeps towards a gateway, over all processes together.
type Leak struct {
	// Limits all apply, in every rolling window; at least one, with different windows.
	Limits []job.Limit
	// Burst is how many calls may start together; from 1 to the smallest N of the limits. Default 1.
	Burst int64
	// Jitter allows for varying network delay on the way to the gateway; 0 up to half the shortest window. Default 5 ms.
	// If it is too small, the gateway sees more than the limit; the rate is W/(W+jitter) of it.
	Jitter time.Duration
	// MaxInFlight is the most calls in flight. 0 (default) = no cap.
	MaxInFlight int64
}

// Admission is the check before a job enters the queue.
type Admission struct {
	// Algorithm is one of job.Algorithms. Default token-bucket.
	Algorithm string
	// Limits all apply. Default: the leak's.
	Limits []job.Limit
	// Burst is how many jobs a rested gateway admits at once, and the largest cost of a job; at least 1. It can be
	// configured only for the two buckets. Default: 60 s' worth of the tightest limit, and at least the largest cost
	// that the leak's limits grant. For the windows it is the smallest N of Limits.
	Burst int64
	// Precision is how many parts a sliding window is divided into, 1 to 1000; only for sliding-window. Default 60.
	Precision int64
	// Follows says that no limits are configured for admission: it uses the leak's, including those set at run time.
	Follows bool

	given int64 // the configured burst; 0: derived from the limits
}

// Under returns what applies at admission while these limits are set at run time for the leak.
func (a Admission) Under(live []job.Limit) Admission {
	if !a.Follows {
		return a
	}
	a.Limits, a.Burst = nil, a.given
	a.fill(Leak{Limits: live})
	return a
}

// Retry says how often and when a job is retried.
type Retry struct {
	// Attempts is how many calls of a job may fail before it is parked as exhausted; at least 1. Default 6.
	Attempts int
	// First is the back-off after the first failure; it doubles with each further one. Above 0. Default 2 s.
	First time.Duration
	// Max is the longest back-off; at least First. Default 10 min.
	Max time.Duration
}

// Hold bounds how long a gateway that asks for a pause is held.
type Hold struct {
	// Max is the longest pause that one answer can ask for, with Retry-After and the like; 1 s to 7 d. Default 15 min.
	// If it is too short, calls are made although the gateway wants none. If it is too long, one wrong header stops all
	// calls for that time.
	Max time.Duration
}

// Parked bounds how many jobs producers can have parked.
type Parked struct {
	// Most is the number of parked jobs, over all reasons, at which new jobs are no longer parked; 0 = no bound. Default
	// 5,000,000. A new job beyond it is answered that there is no room. Jobs parked by the dispatcher or an operator are
	// not bounded.
	Most int64
	// Bytes is the total stored size of parked payloads at which new jobs are no longer parked; 0 = no bound. Default 4
	// GiB. See Most.
	Bytes int64
}

// Replay says how parked jobs are replayed.
type Replay string

// The values of Replay: auto and manual for jobs parked as rejected, manual and after-recovery for those parked as
// exhausted.
const (
	ReplayAuto   Replay = "auto"   // they are admitted by themselves, in order, as room appears
	ReplayManual Replay = "manual" // they wait for `dispatcher dlq replay`; new jobs pass them
	// ReplayRecovery replays them when the gateway is healthy, after growing delays, and at most five times.
	ReplayRecovery Replay = "after-recovery"
)

// DedupeScope says where an id must be unknown for a job to be accepted.
type DedupeScope string

// The scopes.
const (
	DedupeGateway DedupeScope = "gateway" // at the job's gateway
	DedupeAll     DedupeScope = "all"     // at every gateway with jobs in Redis
)

// Default returns a configuration without gateways: the defaults.
func Default() *Config {
	return &Config{Redis: "redis://127.0.0.1:6379/0", Listen: "127.0.0.1:9400", DedupeScope: DedupeGateway}
}

// DefaultGateway returns a gateway without a URL and limits: the defaults. Admission.Limits and Admission.Burst are
// derived from the leak's limits; see Admission.
func DefaultGateway() Gateway {
	return Gateway{
		Request: Request{
			Method:      "POST",
			Encoding:    EncodingJSON,
			Headers:     map[string]Secret{},
			Key:         job.KeyShape{Name: "Idempotency-Key"},
			KeyLifetime: 5 * time.Minute,
			Timeout:     30 * time.Second,
		},
		Answers:    Answers{Profile: ProfileDefault},
		Reference:  "id",
		Amount:     Amount{Least: 1, Most: MostAmount},
		Leak:       Leak{Burst: 1, Jitter: 5 * time.Millisecond},
		Admission:  Admission{Algorithm: job.TokenBucket, Precision: 60},
		Retry:      Retry{Attempts: 6, First: 2 * time.Second, Max: 10 * time.Minute},
		Hold:       Hold{Max: 15 * time.Minute},
		BatchBrake: job.Brake{Calls: 50, Refused: 90},
		Parked:     Parked{Most: 5_000_000, Bytes: 4 << 30},
		Pan:        job.CardRule{Then: job.CardsRefuse},
		Circuit:    job.Circuit{Failures: 5, Ratio: 50, Calls: 20, Window: 10 * time.Second, Max: 5 * time.Second},
		Replay:     ReplayAuto,
		Exhausted:  ReplayManual,
		Dedupe:     30 * 24 * time.Hour,
	}
}
