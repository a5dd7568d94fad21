// Package desk implements everything that operators see and do: the state of a gateway, the view of a job, the
// selection of parked jobs by a filter, and every act, with its audit entry. The commands, the console and the
// API only parse requests and display results.
//
// An act on parked jobs has three steps: a Selection says which jobs are meant, Plan says what would be done to
// them, and Run does it.
package desk

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
)

// Desk is some gateways of one Redis. It is safe for concurrent use.
type Desk struct {
	Gateways []*Gateway // in configured order

	redis  redis.UniversalClient // see Of; nil: gateways outside the desk are not searched
	listed []string              // names of all configured gateways
	only   bool                  // see Only
}

// Gateway is one gateway at the desk.
type Gateway struct {
	config.Gateway
	Store *deadletter.Store
	Books *ledger.Books

	redis redis.UniversalClient
}

// New returns the desk of these gateways.
func New(c redis.UniversalClient, gateways []config.Gateway) *Desk {
	d := &Desk{Gateways: make([]*Gateway, len(gateways))}
	for i, g := range gateways {
		d.Gateways[i] = &Gateway{Gateway: g, Store: dispatch.Store(c, g), Books: dispatch.Books(c, g), redis: c}
	}
	return d
}

// abreast calls look for each gateway concurrently, with shared round trips, and returns the results in gateway
// order. It is only for reading.
func abreast[T any](ctx context.Context, d *Desk, look func(context.Context, *Gateway) (T, error)) ([]T, []error) {
	found, errs := make([]T, len(d.Gateways)), make([]error, len(d.Gateways))
	if len(found) == 0 {
		return nil, nil
	}
	redisdb.Abreast(ctx, d.Gateways[0].redis, len(found), func(c redis.UniversalClient, i int) {
		g := d.Gateways[i]
		found[i], errs[i] = look(ctx, &Gateway{Gateway: g.Gateway, Store: g.Store.On(c), Books: g.Books.On(c), redis: c})
	})
	return found, errs
}

// Gateway returns the gateway with that name; nil if the desk has none.
func (d *Desk) Gateway(name string) *Gateway {
	if i := slices.IndexFunc(d.Gateways, func(g *Gateway) bool { return g.Name == name }); i >= 0 {
		return d.Gateways[i]
	}
	return nil
}

// Names returns the gateways' names as a text.
func (d *Desk) Names() string {
	names := make([]string, len(d.Gateways))
	for i, g := range d.Gateways {
		names[i] = g.Name
	}
	return strings.Join(names, ", ")
}

// By is who does something, and why.
type By struct {
	Who, Why string
	// Said is the name that the person gave, if Who is the name of a token and differs from it; empty: the
	// same. Via is how Who is known. The zero Via means by access to Redis itself.
	Said string
	Via  roles.Proof
	// Person is the token's owner. Empty: not configured.
	Person string
}

// ByOf returns the By of an identity that gave typed as its name. Both texts are kept and shown to other people, so
// characters that end a line, control a terminal or reverse text become blanks.
func ByOf(who roles.Identity, typed, why string) By {
	by := By{Why: oneLine(why), Via: who.Proof, Person: who.Person}
	by.Who, by.Said = who.Says(oneLine(typed))
	return by
}

func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, text))
}

// act returns an audit entry with these names and the reason.
func (b By) act(a deadletter.Act) deadletter.Act {
	a.Who, a.Why, a.Said, a.Via = b.Who, b.Why, b.Said, cmp.Or(string(b.Via), string(roles.ByRedis))
	return a
}

// usage returns an error for a wrong request.
func usage(hint, format string, args ...any) error {
	return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Found is a job's record, and the gateway that knows it.
type Found struct {
	*Gateway
	Record job.Record
}

// Find returns the records with a job id, from each gateway that knows one. An error with code not_found says
// that none does.
func (d *Desk) Find(ctx context.Context, id string) ([]Found, error) {
	found, errs := abreast(ctx, d, func(ctx context.Context, g *Gateway) (*job.Record, error) {
		rec, ok, err := g.Books.Find(ctx, id)
		if err != nil || !ok {
			return nil, err
		}
		return &rec, nil
	})
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	var all []Found
	for i, rec := range found {
		if rec != nil {
			all = append(all, Found{d.Gateways[i], *rec})
		}
	}
	if len(all) == 0 {
		return nil, d.noJob(ctx, id)
	}
	return all, nil
}

// FindOne is Find for a job to be acted on: an error with code usage says that several gateways know it.
func (d *Desk) FindOne(ctx context.Context, id string) (Found, error) {
	all, err := d.Find(ctx, id)
	if err != nil {
		return Found{}, err
	}
	return only(all, "job %q is known to several gateways: %s")
}

// only returns the single record found. If there are several, format is the error's text: %q is the id, %s the
// gateways.
func only(all []Found, format string) (Found, error) {
	if len(all) == 1 {
		return all[0], nil
	}
	where := make([]string, len(all))
	for i, f := range all {
		where[i] = f.Name
	}
	return Found{}, usage("choose one with -g", format, all[0].Record.Job.ID, strings.Join(where, ", "))
}

// Choose returns the configured gateways with these names, or all, in configured order. An error with code
// not_found says that one of them is not configured.
func Choose(cfg *config.Config, names []string) ([]config.Gateway, error) {
	if len(names) == 0 {
		return cfg.Gateways, nil
	}
	for _, n := range names {
		if _, ok := cfg.Gateway(n); !ok {
			return nil, dispatch.NoGateway(cfg, n)
		}
	}
	return slices.DeleteFunc(slices.Clone(cfg.Gateways), func(g config.Gateway) bool { return !slices.Contains(names, g.Name) }), nil
}

// shownMark is the content of a batch's token: the state shown of each gateway's part.
type shownMark struct {
	Batch string            `json:"b"`
	Shown map[string]string `json:"s"`
}

// ShownToken returns the token of a batch as shown to an approver.
func ShownToken(batch string, all []BatchApproval) (string, error) {
	m := shownMark{batch, map[string]string{}}
	for _, a := range all {
		m.Shown[a.Gateway] = a.shown
	}
	text, err := json.Marshal(m)
	return base64.RawURLEncoding.EncodeToString(text), err
}

// ShownBy parses the token of this batch: the state shown of each gateway's part.
func ShownBy(batch, token string) (map[string]string, error) {
	var m shownMark
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || json.Unmarshal(text, &m) != nil || m.Batch != batch || m.Shown == nil {
		return nil, usage("ask with dry_run first, look at it, and send its token", "the token is not one of what was shown of this batch")
	}
	return m.Shown, nil
}
