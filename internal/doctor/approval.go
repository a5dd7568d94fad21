package doctor

import (
	"slices"

	"spillway/internal/config"
	"spillway/internal/roles"
)

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
