// Package config reads the configuration file: strictly, with a message for a person at every fault.
//
// Load reads the YAML tree, fills in the defaults and checks that the values go together. Whatever is wrong (an unknown
// key, a bad value, an unset variable, a contradiction) is reported with file, line, field and a hint, all of it at once.
// The package knows none of the others: cmd hands the values on.
package config

import (
	"slices"
	"time"

	"spillway/internal/job"
)

// Config is a configuration file with its defaults filled in.
type Config struct {
	// File is the file's name as it was given.
	File string
	// Redis says where Redis is: one of the URL forms, or "embedded". It may hold a password: show it with RedactURL.
	// Default redis://127.0.0.1:6379/0.
	Redis Secret
	// RedisAt is where the file has it. Zero: not there, or overridden by a flag.
	RedisAt Position
	// RedisTLS says whom to trust and who we are, where the address of Redis says TLS. The zero TLS: the system's roots, and no certificate of our own.
	RedisTLS TLS
	// WaitReplicas is how many of Redis's replicas must have a job before it is reported as taken in, and an attempt before its
	// call; 0 to 16. Default 0: nobody waits. If it is more than there are, nothing is taken in or called.
	WaitReplicas int
	// Listen is where run serves HTTP, host:port. Empty serves nothing. Default 127.0.0.1:9400.
	Listen string
	// ListenWritten says that the file has listen: unlike the default, such an address must not move to another port.
	ListenWritten bool
	// Token is what callers of the HTTP side must show. Empty = none, which is only for loopback.
	Token Secret
	// TokenPrevious is let in as well as Token, while callers change from one to the other. Empty = there is none.
	TokenPrevious Secret
	// Tokens have names and roles. Empty = there is Token alone.
	Tokens []Token
	// CookieSecure says that a browser may show its cookie over TLS alone. Default false: only where the request says that it came by TLS.
	CookieSecure bool
	// OIDC says whose logins with an OpenID provider count. Nil (default): nobody's.
	OIDC *OIDC
	// Encryption says how payloads are sealed. Nil = they are not.
	Encryption *Encryption
	// DedupeScope says where an id must be unknown for a job to be taken in. Default DedupeGateway.
	DedupeScope DedupeScope
	// Gateways are in the order of the file; at least one.
	Gateways []Gateway
	// SecretFiles are the files that ${file:PATH} names.
	SecretFiles []string
}

// Names returns the gateways' names in the order of the file.
func (c *Config) Names() []string {
	names := make([]string, len(c.Gateways))
	for i, g := range c.Gateways {
		names[i] = g.Name
	}
	return names
}

// Gateway returns the gateway of that name, and whether the file has it.
func (c *Config) Gateway(name string) (Gateway, bool) {
	i := slices.IndexFunc(c.Gateways, func(g Gateway) bool { return g.Name == name })
	if i < 0 {
		return Gateway{}, false
	}
	return c.Gateways[i], true
}

// Position is a place in a file; lines and columns count from 1.
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
	// Pack is the name of the pack that it is like. Empty = none.
	Pack string
	// Encryption is the configuration's: the same for each gateway.
	Encryption *Encryption
	// Request says how it is called.
	Request Request
	// Answers says what its answers mean.
	Answers Answers
	// Lookup says how it is asked what became of a payment. nil (default) = it is not.
	Lookup *Lookup
	// Reference is the dotted path, in the body of an answer that means done, of the gateway's own reference for the payment. Default
	// id; empty = none is kept.
	Reference string
	// Routes are its named requests, in the order of the file; at most 32. Default none.
	Routes []Route
	// Routed says that it has no URL of its own: each of its jobs takes a route, and one that names none the first.
	Routed bool
	// Priority says which jobs are called first. nil (default): they are called in their order.
	Priority *Priority
	// Lanes says how its jobs are divided into lanes. nil (default): they are not.
	Lanes *Lanes
	// Amount says where a payload has its money. The zero Amount: nowhere, no sums of money.
	Amount Amount
	// Map says how a record of a billing file becomes a payload. Nil (default) = a record is its payload.
	Map *job.Map
	// Leak is the leak rate: the limits the pacer keeps towards the gateway.
	Leak Leak
	// Admission is the check before a job enters the queue.
	Admission Admission
	// Retry says how often and when a job is tried again.
	Retry Retry
	// Circuit says when a gateway that fails is left alone. Default 5 failures in a row, or 50 % of at least 20 calls within 10 s; Max 5 s.
	Circuit job.Circuit
	// Hold bounds how long a gateway is left alone.
	Hold Hold
	// BatchBrake says when a batch stops itself. Default 90 % of its first 50 calls refused.
	BatchBrake job.Brake
	// Brakes bound the money that calls take. Default none.
	Brakes job.Brakes
	// Approval says what needs the yes of a second person. The zero Approval (default): nothing does.
	Approval job.Approval
	// Parked bounds what producers can have parked.
	Parked Parked
	// Pan says what becomes of card numbers in what producers send, and in what the gateway answers. The zero CardRule: they are refused.
	Pan job.CardRule
	// EraseAfter is how long a job has been over when what Spillway still knows of a person by it is erased; at least 1 s. Zero (default): nobody erases it. Payload and error go
	// when the job is over in any case.
	EraseAfter time.Duration
	// Outcomes says who reads the outcomes of its jobs. Nil (default): nobody does, and none is told.
	Outcomes *Outcomes
	// Replay says whether jobs parked as rejected go in by themselves. Default ReplayAuto.
	Replay Replay
	// Exhausted says whether jobs parked as exhausted go in by themselves, ReplayRecovery, or not. Default ReplayManual.
	Exhausted Replay
	// Dedupe is how long a job's id stays known after it is done or discarded; at least 1 s. Default 30 d.
	// Shorter than a producer may take to send a file again, and jobs are charged twice.
	Dedupe time.Duration
}

// Request is one call to a gateway.
type Request struct {
	// URL may hold {id} and {payload.FIELD} (dotted paths) behind its host, to be escaped. It may hold a secret.
	// Empty only when Options.Secrets is off and a variable in it is not set.
	URL Secret
	// URLText is the URL as it stands in the file, without its password: to show.
	URLText string
	// Method is GET, HEAD, POST, PUT, PATCH or DELETE. Default POST.
	Method string
	// Encoding of the payload: EncodingJSON (default) or EncodingForm.
	Encoding string
	// Strip names fields of the payload (dotted paths) that are left out of the body. Default none.
	Strip []string
	// Headers go with every call, under the names as written. A value is empty only when Options.Secrets is off and
	// a variable in it is not set.
	Headers map[string]Secret
	// JobHeaders are the headers whose values have places for {id} or {payload.FIELD}: their parts, in order.
	JobHeaders map[string][]HeaderPart
	// Key is where idempotency keys stand and how they are written. Without a Name the gateway has none. Default the header Idempotency-Key, and the job's id.
	// A prefix has at most 40 visible ASCII characters.
	Key job.KeyShape
	// KeyPrefixWritten says that the file has Key.Prefix, even if as "".
	KeyPrefixWritten bool
	// KeyLifetime is how long the gateway remembers a key; 0 exactly when it has none. Default 5 min, below the shortest that
	// any gateway is known to keep. Longer than the gateway's own, and a call with a forgotten key charges twice. What may be relied on is KeyCovers.
	KeyLifetime time.Duration
	// KeyForgets says that the gateway makes a call again whose first answer was a failure, although the key is the same: a key covers nothing then.
	KeyForgets bool
	// Timeout bounds one call, from its slot to the end of its answer; above 0. Default 30 s.
	Timeout time.Duration
	// TLS says whom to trust and who we are, where the URL is https. The zero TLS: the system's roots, and no certificate of our own.
	TLS TLS
	// Proxy is the HTTP proxy that calls go through, as a URL. Empty = none; that of the environment is not obeyed. It may hold a password.
	Proxy Secret
	// Sign says how calls are signed. The zero Sign: not at all.
	Sign Sign
	// OAuth2 says where the access token of calls comes from. Not On: they carry none.
	OAuth2 OAuth2
}

// HeaderPart is a piece of a header's value. One of its fields is set.
type HeaderPart struct {
	// Text stands in the file.
	Text Secret
	// Variable is the value of a variable or file. Empty only when Options.Secrets is off and it is not set.
	Variable Secret
	// Place is what the job fills in: id or payload.FIELD.
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
	// Rules go before the profile, in their order: the first that matches decides. A pack's stand behind the file's.
	Rules []Rule
	// DoneNeeds holds dotted paths into the body of an answer with a 2xx, and for each the values, as texts, of which it must have one: else the
	// outcome is unknown, unless a rule decides. nil = a 2xx is enough.
	DoneNeeds map[string][]string
	// Matches holds dotted paths into the body of an answer that means done, accepted or new_key, and for each the payload's field, or job.OwnID, from which it must not
	// differ: else the answer is another payment's. nil = nothing is compared.
	Matches map[string]string
	// Saved says what a repeat gets after a first answer with a status of these classes ("2xx", "4xx", "5xx"). A class that is not there: as the profile has it.
	Saved map[string]job.Saved
}

// The built-in profiles of answers.
const (
	ProfileDefault = "default"
	ProfileStripe  = "stripe"
)

// Rule gives an answer a meaning of its own. All that is set must match; at least one of status, header and body is set.
type Rule struct {
	// Event names what has happened, in a word. Empty = it has no name.
	Event string
	// When is job.WhenFirst, job.WhenRepeat, or empty for both.
	When string
	// Status is the HTTP status, 100 to 599, or 1 to 5 for all that begin with that digit. 0 = any.
	Status int
	// Header holds names and the value wanted of each, or a regular expression between slashes.
	Header map[string]string
	// Body holds dotted paths into the answer and the value wanted there, as text: 301 and "301" are the same. Between slashes it is a regular expression.
	Body map[string]string
	// Then is one of job.Verdicts.
	Then string
	// Scope is what such an answer concerns, one of job.Scopes; only where it means hold. Empty = the gateway.
	Scope string
	// Reference is the dotted path of the gateway's own reference in such an answer. Empty = Gateway.Reference.
	Reference string
}

// MostAmount is the largest whole number that every reader of JSON takes exactly (RFC 7493), in minor units.
const MostAmount = 1<<53 - 1

// Amount says where a payload has its money, in minor units.
type Amount struct {
	// Field is the dotted path of the amount. Empty = no sums of money.
	Field string
	// Currency is the dotted path of the currency's code. Empty = one currency, which has no name.
	Currency string
	// Least is the smallest amount of a job, in minor units. Default 1: nothing is paid with nothing or less.
	Least int64
	// Most is the largest amount of a job, in minor units. Default MostAmount. A slip of the keyboard is stopped by a small one.
	Most int64
	// Required says that each job has an amount, and a currency where Currency is set. Default false; true where the gateway has a Map.
	Required bool
}

// Leak is what the pacer keeps towards a gateway, over all processes together.
type Leak struct {
	// Limits all hold, in every rolling window; at least one, with different windows.
	Limits []job.Limit
	// Burst is how many calls may start together; 1 up to the smallest N of the limits. Default 1.
	Burst int64
	// Jitter is the allowance for the variation of the delay on the way to the gateway; 0 up to half the shortest
	// window. Default 5 ms. Too small, and the gateway sees more than the limit; the rate is W/(W+jitter) of it.
	Jitter time.Duration
	// MaxInFlight is how many calls may be under way at once. 0 (default) = no cap.
	MaxInFlight int64
}

// Admission is the check before a job enters the queue.
type Admission struct {
	// Algorithm is one of job.Algorithms. Default token-bucket.
	Algorithm string
	// Limits all hold. Default: the leak's.
	Limits []job.Limit
	// Burst is how many jobs a rested gateway takes at once, and the largest cost of a job; at least 1. The file gives it
	// for the two buckets alone. Default: 60 s' worth of the tightest limit, and not below the largest cost which the
	// leak's limits grant. For the windows it is the smallest N of Limits.
	Burst int64
	// Precision is how many parts a sliding window is counted in, 1 to 1000; for sliding-window alone. Default 60.
	Precision int64
	// Follows says that the file names no limits of admission's own: they are the leak's, also those that are set live.
	Follows bool

	given int64 // the burst that the file names; 0: it follows from the limits
}

// Under returns what holds at admission while these limits are set live for the leak.
func (a Admission) Under(live []job.Limit) Admission {
	if !a.Follows {
		return a
	}
	a.Limits, a.Burst = nil, a.given
	a.fill(Leak{Limits: live})
	return a
}

// Retry says how often and when a job is tried again.
type Retry struct {
	// Attempts is how many calls of a job may fail before it is parked as exhausted; at least 1. Default 6.
	Attempts int
	// First is the back-off after the first failure, which doubles with each; above 0. Default 2 s.
	First time.Duration
	// Max is the longest back-off; not below First. Default 10 min.
	Max time.Duration
}

// Hold bounds how long a gateway is left alone that asks for it.
type Hold struct {
	// Max is the longest wait that one answer can ask for, with Retry-After and the like; 1 s to 7 d. Default 15 min. Too short, and a
	// gateway is called that wants to be left alone; too long, and one mistaken header stops it for so long.
	Max time.Duration
}

// Parked bounds what producers can have parked.
type Parked struct {
	// Most is how many parked jobs a gateway may have, of all reasons together, for a newcomer to be parked; 0 = any number. Default
	// 5,000,000. A newcomer beyond it is told that there is no room. What the dispatcher or a person parks is parked in any case.
	Most int64
	// Bytes is how many bytes the payloads of a gateway's parked jobs may come to, as they are stored, for a newcomer to be parked; 0 = any
	// number. Default 4 GiB. Beyond it is as beyond Most.
	Bytes int64
}

// Replay says what becomes of parked jobs.
type Replay string

// The ways of replay: auto and manual for jobs parked as rejected, manual and after-recovery for those parked as exhausted.
const (
	ReplayAuto   Replay = "auto"   // they go in by themselves, in order, as room appears
	ReplayManual Replay = "manual" // they wait for `dispatcher dlq replay`; newcomers pass
	// ReplayRecovery takes them in when the gateway is well, later each time, and five times at most.
	ReplayRecovery Replay = "after-recovery"
)

// DedupeScope is where an id must be unknown for a job to be taken in.
type DedupeScope string

// The scopes.
const (
	DedupeGateway DedupeScope = "gateway" // at the job's gateway
	DedupeAll     DedupeScope = "all"     // at every gateway that Redis has jobs of
)

// Default returns a configuration without gateways: what holds where the file says nothing.
func Default() *Config {
	return &Config{Redis: "redis://127.0.0.1:6379/0", Listen: "127.0.0.1:9400", DedupeScope: DedupeGateway}
}

// DefaultGateway returns a gateway without a URL and limits: what holds where the file says nothing.
// Admission.Limits and Admission.Burst follow from the leak's limits; see Admission.
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
