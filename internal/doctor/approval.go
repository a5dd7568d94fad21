package doctor

import (
	"slices"

	"spillway/internal/config"
	"spillway/internal/roles"
)

// lintApproval says where the approval of a second person is not what it looks like.
func (x *examination) lintApproval(g config.Gateway) (found []Check) {
	if len(g.Approval.BatchOver) == 0 {
		return nil
	}
	may := func(t config.Token) bool {
		return slices.Contains(roles.Approve.Roles(), t.Role) && (len(t.Gateways) == 0 || slices.Contains(t.Gateways, g.Name))
	}
	if !slices.ContainsFunc(x.p.Config.Tokens, may) {
		found = append(found, warn("approval", g.Name, "write tokens: [{name: …, role: approver, secret: …}]",
			"batches above approval.batch_over wait for a person whom no token names: nobody can approve them"))
	}
	if x.p.DB == nil {
		found = append(found, warn("approval", g.Name, "give operators tokens and --server, and Redis's password to programs alone",
			"whoever runs this has Redis's password, and can write down an approval that nobody gave: approval.batch_over does not bind him"))
	}
	return found
}
