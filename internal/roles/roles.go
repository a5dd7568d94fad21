// Package roles says who may do what: the roles that tokens have, what each operation needs, and who sent a request. It is part of the ground: the configuration, the HTTP side,
// the console and the table of operations go by it.
package roles

import (
	"context"
	"slices"
	"strings"
)

// Role is what a token may do.
type Role string

// The roles.
const (
	Metrics  Role = "metrics"  // reads /metrics, and nothing else
	Viewer   Role = "viewer"   // sees everything but payloads, and changes nothing
	Producer Role = "producer" // posts jobs, and reads the jobs and outcomes of its gateways
	Operator Role = "operator" // sees everything, and replays, pauses, sets limits and acts upon batches
	Approver Role = "approver" // sees what a viewer sees, and approves what others brought in
	Admin    Role = "admin"    // everything
)

// All returns the roles, that with the least rights first.
func All() []Role { return []Role{Metrics, Viewer, Producer, Operator, Approver, Admin} }

// Need is what an operation, a path or a page needs of who asks for it. The zero Need is met by nobody: what has it refuses everyone.
type Need int

// The needs.
const (
	Undeclared Need = iota
	Nothing         // not even a token
	AnyRole         // a token, whatever its role
	Scrape          // to read metrics
	Read            // to read jobs and outcomes
	Submit          // to hand jobs in
	View            // to see how everything stands
	Operate         // to change something, or to see payloads
	Approve         // to approve what somebody else brought in
	Administer      // to change what a gateway is called, and to forget it
)

// Needs returns all needs but Undeclared.
func Needs() []Need {
	return []Need{Nothing, AnyRole, Scrape, Read, Submit, View, Operate, Approve, Administer}
}

// meeting are the roles that meet a need.
var meeting = map[Need][]Role{
	AnyRole:    All(),
	Scrape:     {Metrics, Viewer, Operator, Approver, Admin},
	Read:       {Viewer, Producer, Operator, Approver, Admin},
	Submit:     {Producer, Admin},
	View:       {Viewer, Operator, Approver, Admin},
	Operate:    {Operator, Admin},
	Approve:    {Approver, Admin},
	Administer: {Admin},
}

// Roles returns the roles that meet a need, that with the least rights first. Every caller meets Nothing, and nobody Undeclared.
func (n Need) Roles() []Role { return meeting[n] }

// String is the role with the least rights that meets the need, or several of which none has the rights of the other: "viewer or producer".
func (n Need) String() string {
	switch n {
	case Undeclared:
		return "undeclared"
	case Nothing:
		return "none"
	case AnyRole:
		return "any"
	case Read:
		return string(Viewer) + " or " + string(Producer)
	}
	return string(meeting[n][0])
}

// Proof is how it is known who somebody is.
type Proof string

// The proofs. The zero Proof is that of who has Redis itself.
const (
	ByRedis  Proof = "redis"        // by nothing: who has Redis's password says who he is
	ByToken  Proof = "token"        // by a token with a name
	ByLogin  Proof = "oidc"         // by a login with an OpenID provider
	BySharer Proof = "shared_token" // by the one token without a name: all who have it are one
	ByNone   Proof = "no_token"     // by nothing: the HTTP side asks for no token
)

// Identity is who asks. The zero Identity is nobody, who may do nothing.
type Identity struct {
	// Name is that of the token; empty where it has none.
	Name string
	// Person is whose token it is, as his logins and other tokens of his name him. Empty: nobody has said so, and Name stands for him.
	Person string
	Role   Role
	// Gateways are those that exist for it; none means all.
	Gateways []string
	Proof    Proof
}

// Everybody is who asks where no token is needed.
func Everybody() Identity { return Identity{Role: Admin, Proof: ByNone} }

// May says whether it meets a need.
func (i Identity) May(n Need) bool { return n == Nothing || slices.Contains(meeting[n], i.Role) }

// Scoped says that only some gateways exist for it.
func (i Identity) Scoped() bool { return len(i.Gateways) > 0 }

// Sees says whether a gateway exists for it.
func (i Identity) Sees(gateway string) bool {
	return !i.Scoped() || slices.Contains(i.Gateways, gateway)
}

// Says returns who did something, for the trail, where typed is who somebody says that he is: the authenticated name, and beside it what was typed, if that is something else.
func (i Identity) Says(typed string) (who, said string) {
	if i.Name == "" || i.Name == typed {
		return typed, ""
	}
	return i.Name, strings.TrimSpace(typed)
}

type key struct{}

// With returns a context of what an identity asks for.
func With(ctx context.Context, i Identity) context.Context { return context.WithValue(ctx, key{}, i) }

// Of returns who asks. Nobody knows where no one has said so.
func Of(ctx context.Context) (i Identity, known bool) {
	i, known = ctx.Value(key{}).(Identity)
	return i, known
}
