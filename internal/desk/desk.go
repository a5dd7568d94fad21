// Package desk is all that operators see and do: how a gateway stands, what is known of a job, which parked jobs a filter means, and every act, with
// its entry in the trail. The commands, the console and the API parse what they are asked, and draw what comes back.
//
// An act upon parked jobs goes in three steps: a Selection says which jobs are meant, Plan what would be done to them, and Run does it.
package desk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
)

// Desk is some gateways of one Redis. Safe for concurrent use.
type Desk struct {
	Gateways []*Gateway // in the order of the configuration

	redis  redis.UniversalClient // see Of; nil: nobody looks beyond the gateways
	listed []string              // the names of all that the configuration has
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

// abreast runs look for each gateway, beside one another and in common round trips, and returns what they found, in the order of the gateways. It is for
// reading.
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

// Gateway returns the gateway of that name; nil if the desk has none.
func (d *Desk) Gateway(name string) *Gateway {
	if i := slices.IndexFunc(d.Gateways, func(g *Gateway) bool { return g.Name == name }); i >= 0 {
		return d.Gateways[i]
	}
	return nil
}

// Names is the gateways' names, as a text.
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
	// Said is who he says that he is, where Who is the name of a token; empty: the same. Via is how it is known that he is Who. The zero Via: he has Redis itself.
	Said string
	Via  roles.Proof
	// Person is whose token it is. Empty: nobody has said so.
	Person string
}

// ByOf is who does something: an identity, who says that he is typed.
func ByOf(who roles.Identity, typed, why string) By {
	by := By{Why: why, Via: who.Proof, Person: who.Person}
	by.Who, by.Said = who.Says(typed)
	return by
}

// act is what he does, as it stands in the trail.
func (b By) act(a deadletter.Act) deadletter.Act {
	a.Who, a.Why, a.Said, a.Via = b.Who, b.Why, b.Said, cmp.Or(string(b.Via), string(roles.ByRedis))
	return a
}

// usage is the error of something that was asked wrongly.
func usage(hint, format string, args ...any) error {
	return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Found is a job's record, and the gateway that knows it.
type Found struct {
	*Gateway
	Record job.Record
}

// Find returns the records of a job id, of each gateway that knows one. An error with the code not_found says that none does.
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

// FindOne is Find for a job that is to be acted upon: an error with the code usage says that several gateways know it.
func (d *Desk) FindOne(ctx context.Context, id string) (Found, error) {
	all, err := d.Find(ctx, id)
	if err != nil {
		return Found{}, err
	}
	return only(all, "job %q is known to several gateways: %s")
}

// only returns the one that was found. Where several were found, format is the error's text: %q is the id, %s the gateways.
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
