package double

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"spillway/internal/job"
)

//go:embed tables/*.yaml
var tables embed.FS

// Table is one gateway: everything that a double does differently from the others.
type Table struct {
	// Gateway is its name with its version, like stripe/v1. The file is tables/stripe-v1.yaml.
	Gateway string `yaml:"gateway"`
	// About says in a sentence what it is, and which part of it is played.
	About string `yaml:"about"`
	// Read is the day on which the documents were read.
	Read string `yaml:"read"`

	Auth    Auth    `yaml:"auth"`
	Request Request `yaml:"request"`
	// Keys are the places for an idempotency key. The first one that a call has is its key. Without any, every call is executed.
	Keys  []Key `yaml:"keys"`
	Saved Saved `yaml:"saved"`
	// Running is what a repeat gets while the first call runs: answers, or wait, which waits for the answer to the first call. Several are taken in turn.
	Running names `yaml:"running"`

	// ID is a payment's id at the gateway; {n} is its number.
	ID string `yaml:"id"`
	// Payment is the body that shows a payment, with the words in braces filled in.
	Payment string `yaml:"payment"`
	// Item shows a payment within a list or a search. "" means Payment.
	Item string `yaml:"item"`
	// Words are the states that a payment can be in, and the gateway's word for each.
	Words map[string]string `yaml:"words"`
	// Normal is the first state of a good payment: paid, pending (the outcome comes later) or created (a second call
	// charges it).
	Normal string `yaml:"normal"`
	// Moves are the changes of state with time.
	Moves map[string][]Move `yaml:"moves"`

	// Answers are its answers, by name. One with the name of a state is the answer for a payment in that state.
	Answers map[string]Answer `yaml:"answers"`
	Limits  []Limit           `yaml:"limits"`
	// Tells are headers on every answer, with the words in braces filled in: {limit} {used} {left} {reset_unix}
	// {reset_date} {key}. One without a value is left out.
	Tells map[string]string `yaml:"tells"`
	// Endpoints are the known paths. A POST to any other path is a payment.
	Endpoints []Endpoint `yaml:"endpoints"`
	// Duplicates is how it guesses duplicates by their content; nil: it does not.
	Duplicates *Duplicates `yaml:"duplicates"`

	// Fates are those that it can play beside the common ones. A plan here replaces the usual one of the fate.
	Fates map[string]Plan `yaml:"fates"`
	// Without says why its documents exclude a fate, if there is more to say.
	Without map[string]string `yaml:"without"`
}

// Auth is the credential that a call must have. Without the header it gets the answer unauthorised.
type Auth struct {
	Header string `yaml:"header"`
	// Life is that of a token from an endpoint of the kind token. Other credentials never expire.
	Life span `yaml:"life"`
}

// Request names the fields of a payment's body. Fields are dotted paths; .* at an end is any field there.
type Request struct {
	Encoding string `yaml:"encoding"` // json or form
	Amount   string `yaml:"amount"`
	// Optional allows a payment without an amount. The amount is elsewhere: in a quote, in an order.
	Optional bool   `yaml:"optional"`
	Unit     string `yaml:"unit"` // minor (a whole number), string (a decimal text) or number (a decimal number)
	Currency string `yaml:"currency"`
	// Reference has the fields that may have the caller's own id. The first one that is there counts.
	Reference names `yaml:"reference"`
}

// Key is one place for an idempotency key.
type Key struct {
	In       string `yaml:"in"` // header or body
	Name     string `yaml:"name"`
	Required bool   `yaml:"required"`
	Min      int    `yaml:"min"` // 0: none
	Max      int    `yaml:"max"` // 0: none
	Alphabet string `yaml:"alphabet"`
	Form     string `yaml:"form"` // uuid, or nothing
	Missing  string `yaml:"missing"`
	Bad      string `yaml:"bad"`
	// Life is how long it is known, from its first call: the shortest time that the documents allow.
	Life span `yaml:"life"`
	// Unpublished says that no document gives it, and Life is a guess.
	Unpublished bool `yaml:"unpublished"`
	// Short is the shortest life that has ever been published, or that is possible.
	Short span `yaml:"short"`
	// Scope is what distinguishes equal keys beside the account: path, host, header:NAME.
	Scope names `yaml:"scope"`
}

// Saved is what a repeat gets, by the first answer: answer, state (the payment as it is now; if there is none, the call is executed),
// nothing (the call is executed), or an answer by name. With a bar it depends on whether there is a payment: state|failed-before. Several are
// taken in turn, key by key.
type Saved struct {
	Success names `yaml:"2xx"`
	Refusal names `yaml:"4xx"`
	Failure names `yaml:"5xx"`
	// Mark has the headers of a repeated answer.
	Mark map[string]string `yaml:"mark"`
	// Compare is what must be equal in a repeat: path, body.
	Compare names `yaml:"compare"`
	// Mismatch is the answer if it is not equal.
	Mismatch string `yaml:"mismatch"`
}

func (s Saved) of(status int) (class string, modes names) {
	switch status / 100 {
	case 5:
		return "5xx", s.Failure
	case 4:
		return "4xx", s.Refusal
	}
	return "2xx", s.Success
}

// Answer is one answer.
type Answer struct {
	Status  int               `yaml:"status"`
	Headers map[string]string `yaml:"headers"`
	// Body is its text, with the words in braces filled in. Without it, an answer 2xx has the payment.
	Body *string `yaml:"body"`
	// Charges says that the payment is charged nevertheless.
	Charges bool `yaml:"charges"`
	// Saves overrides Saved for this one.
	Saves string `yaml:"saves"`
}

// Move is a change of a payment's state at an age.
type Move struct {
	After span   `yaml:"after"`
	To    string `yaml:"to"`
}

// Limit is one bound on calls: a number in each window, or a number at once.
type Limit struct {
	Limit  *job.Limit `yaml:"limit"`
	AtOnce int        `yaml:"at_once"`
	// Over is what is counted: account (every call), endpoint (those to one), writes, lookups, ip (those from one address) or
	// unauthorised (answers 401).
	Over   string `yaml:"over"`
	Answer string `yaml:"answer"`
}

// Endpoint is a path with a meaning. Its parts in braces match anything. It is compared with the end of the called path.
type Endpoint struct {
	// Kind is pay, step (a further call that charges payment {id}), get (payment {id}), search (payments by own reference,
	// in the query's Param), list, stored (the first answer to {key}), cancel (by the key in the body's field Param) or token.
	Kind  string `yaml:"kind"`
	Path  string `yaml:"path"`
	Param string `yaml:"param"`
	// Body has {payments} in a search or a list, and the words of a list with more pages: {more} true or false, {next_cursor} {next_page}
	// {next_url} and {next_link}, each null on the last page.
	Body string `yaml:"body"`
	// Size, After, Page, Since and Order are the names of a list's parameters: the size of a page, the payment after which it begins, its
	// number from 1, the earliest moment (RFC 3339), and ASC for the oldest first.
	Size  string `yaml:"size"`
	After string `yaml:"after"`
	Page  string `yaml:"page"`
	Since string `yaml:"since"`
	Order string `yaml:"order"`
	// Most is how many payments a page has at most; 0 is 100.
	Most int `yaml:"most"`
	// Inclusive makes a page begin with the payment of After.
	Inclusive bool   `yaml:"inclusive"`
	Answer    string `yaml:"answer"` // of a step or a cancel
	// Keyless is a step without keys. Again is its answer if the payment is paid already. Without Again the payment is charged again.
	Keyless bool   `yaml:"keyless"`
	Leaves  string `yaml:"leaves"` // the state in which a step leaves the payment; "": paid
	Again   string `yaml:"again"`
	// Lag is how long a search or a list does not find a new payment. WorstLag is the longest lag that the documents admit.
	Lag      span `yaml:"lag"`
	WorstLag span `yaml:"worst_lag"`
}

// Duplicates is a guess: two payments of the same content are one.
type Duplicates struct {
	Same       names  `yaml:"same"` // amount, currency, reference
	Within     span   `yaml:"within"`
	WithoutKey bool   `yaml:"without_key"` // only those without a key
	Answer     string `yaml:"answer"`
}

// Names lists all gateways, in alphabetical order.
func Names() []string {
	files, err := fs.Glob(tables, "tables/*.yaml")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	all := make([]string, 0, len(files))
	for _, f := range files {
		all = append(all, strings.Replace(strings.TrimSuffix(path.Base(f), ".yaml"), "-", "/", 1))
	}
	return all
}

// Load returns the table of a gateway, like stripe/v1. The error of an unknown name lists the known ones.
func Load(name string) (*Table, error) {
	text, err := tables.ReadFile("tables/" + strings.Replace(name, "/", "-", 1) + ".yaml")
	if errors.Is(err, fs.ErrNotExist) || err == nil && !strings.Contains(name, "/") {
		return nil, fmt.Errorf("there is no double of %q%s; there are %s", name, job.DidYouMean(name, "", Names()), strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("the double of %q: %w", name, err)
	}
	t, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the double of %s: %w", name, err)
	}
	return t, nil
}

// Parse reads and checks a table. Unknown fields are errors.
func Parse(text []byte) (*Table, error) {
	t := &Table{}
	if err := yaml.UnmarshalWithOptions(text, t, yaml.Strict()); err != nil {
		return nil, err
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	return t, nil
}

// span is a time as people write it: 24h, 30d.
type span time.Duration

// UnmarshalText reads the time.
func (s *span) UnmarshalText(text []byte) error {
	d, rule := job.ReadDuration(string(text))
	if rule != "" {
		return fmt.Errorf("%q %s", text, rule)
	}
	*s = span(d)
	return nil
}

// names is a name, or a list of them.
type names []string

// UnmarshalYAML reads either.
func (n *names) UnmarshalYAML(unmarshal func(any) error) error {
	var list []string
	if err := unmarshal(&list); err == nil {
		*n = list
		return nil
	}
	var one string
	if err := unmarshal(&one); err != nil {
		return err
	}
	*n = names{one}
	return nil
}
