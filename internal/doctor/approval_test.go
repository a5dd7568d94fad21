package doctor

import (
	"math/big"
	"strings"
	"testing"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
)

// Doctor says if nobody can approve, and that Redis's password circumvents approvals.
func TestAnApprovalThatBindsNobody(t *testing.T) {
	t.Parallel()
	g := config.Gateway{Name: "stripe", Approval: job.Approval{BatchOver: job.Amounts{"EUR": big.NewInt(1)}}}
	token := func(role roles.Role, gateways ...string) []config.Token {
		return []config.Token{{Token: roles.Token{Role: role, Gateways: gateways}}}
	}
	for _, c := range []struct {
		tokens []config.Token
		db     *redisdb.DB
		says   string
	}{
		{nil, &redisdb.DB{}, "nobody can approve"},
		{token(roles.Operator), &redisdb.DB{}, "nobody can approve"},
		{token(roles.Approver, "adyen"), &redisdb.DB{}, "nobody can approve"},
		{token(roles.Approver, "stripe"), &redisdb.DB{}, ""},
		{token(roles.Admin), nil, "has Redis's password"},
	} {
		x := &examination{p: Params{Config: &config.Config{Tokens: c.tokens}, DB: c.db}}
		found := x.lintApproval(g)
		if c.says == "" && len(found) > 0 || c.says != "" && (len(found) != 1 || !strings.Contains(found[0].Message, c.says)) {
			t.Errorf("%+v: %+v", c.tokens, found)
		}
	}
	if found := (&examination{p: Params{Config: &config.Config{}}}).lintApproval(config.Gateway{}); found != nil {
		t.Errorf("without approvals: %+v", found)
	}
}
