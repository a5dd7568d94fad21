// Package roles defines who may do what: the roles of tokens, what each operation needs, and the identity of a
// request's sender. The configuration, the HTTP server, the console and the table of operations use it.
package roles

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"time"
)

// Role is what a token may do.
type Role string

// The roles.
const (
	Metrics  Role = "metrics"  // reads /metrics, and nothing else
	Viewer   Role = "viewer"   // sees everything but payloads, and changes nothing
	Producer Role = "producer" // posts jobs, and reads the jobs and outcomes of its gateways
	Operator Role = "operator" // sees everything, and replays, pauses, sets limits and acts upon batches
	Approver Role = "approver" // sees what a viewer sees, and approves what others submitted
	Admin    Role = "admin"    // everything
)

// All returns the roles, the one with the fewest rights first.
func All() []Role { return []Role{Metrics, Viewer, Producer, Operator, Approver, Admin} }

// Token is an HTTP token with a name and a role.
type Token struct {
	// Name is who uses it, for the audit trail and the log: 1 to 40 of a-z, 0-9, ., _, @ and -. Several tokens
	// may have the same name, with the same role and gateways.
	Name string
	// Person is the token's owner: the name at the OpenID provider, or any name shared by all tokens of that
	// person. Nobody can approve what they submitted or requested themselves, with whichever of their tokens.
	// Empty (default): only Name identifies the owner.
	Person string
	// Role is the role that it gives.
	Role Role
	// SHA256 is the digest of the token's value. All zero if the value is an unset variable that is not
	// required.
	SHA256 [sha256.Size]byte
	// Length is the length of the value in bytes; 0: unknown, as only its digest is configured.
	Length int
	// Gateways are the gateways visible to it. Empty (default): all.
	Gateways []string
	// Expires is when it expires. Zero (default): never.
	Expires time.Time
}

// Rule gives a role to logins with a claim.
type Rule struct {
	// Claim must be Is, or contain it among its values. Its name may be a dotted path.
	Claim, Is string
	// Role is the role that they get.
	Role Role
	// Gateways are the gateways visible to them. Empty (default): all.
	Gateways []string
}

// Need is what an operation, path or page requires of the sender. Nobody meets the zero Need.
type Need int

// The needs.
const (
	Undeclared Need = iota
	Nothing         // not even a token
	AnyRole         // a token, whatever its role
	Scrape          // to read metrics
	Read            // to read jobs and outcomes
	Submit          // to submit jobs
	View            // to see the state of everything
	Operate         // to change something, or to see payloads
	Approve         // to approve what someone else submitted
	Administer      // to rename and forget gateways
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

// Roles returns the roles that meet a need, the one with the fewest rights first. Every sender meets Nothing,
// and nobody meets Undeclared.
func (n Need) Roles() []Role { return meeting[n] }

// String returns the role with the fewest rights that meets the need, or several if none includes the other:
// "viewer or producer".
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

// Proof is how a user is identified.
type Proof string

// The proofs. The zero Proof is access to Redis itself.
const (
	ByRedis  Proof = "redis"        // not at all: with Redis's password any name can be given
	ByToken  Proof = "token"        // by a token with a name
	ByLogin  Proof = "oidc"         // by a login with an OpenID provider
	BySharer Proof = "shared_token" // by the token without a name: all who have it are one
	ByNone   Proof = "no_token"     // not at all: no token is required
)

// Identity is the sender of a request. The zero Identity is nobody, without any rights.
type Identity struct {
	// Name is the token's; empty if it has none.
	Name string
	// Person is the owner, as named by their logins and other tokens. Empty: not configured, and Name is used
	// instead.
	Person string
	Role   Role
	// Gateways are the visible gateways; empty means all.
	Gateways []string
	Proof    Proof
}

// Everybody returns the identity if no token is required.
func Everybody() Identity { return Identity{Role: Admin, Proof: ByNone} }

// May reports whether it meets a need.
func (i Identity) May(n Need) bool { return n == Nothing || slices.Contains(meeting[n], i.Role) }

// Scoped reports whether only some gateways are visible to it.
func (i Identity) Scoped() bool { return len(i.Gateways) > 0 }

// Sees reports whether a gateway is visible to it.
func (i Identity) Sees(gateway string) bool {
	return !i.Scoped() || slices.Contains(i.Gateways, gateway)
}

// Says returns who acted, for the audit trail: the authenticated name and, if it differs, the typed one.
func (i Identity) Says(typed string) (who, said string) {
	if i.Name == "" || i.Name == typed {
		return typed, ""
	}
	return i.Name, strings.TrimSpace(typed)
}

type key struct{}

// With returns a context with an identity.
func With(ctx context.Context, i Identity) context.Context { return context.WithValue(ctx, key{}, i) }

// Of returns the identity in a context. known is false if there is none.
func Of(ctx context.Context) (i Identity, known bool) {
	i, known = ctx.Value(key{}).(Identity)
	return i, known
}
