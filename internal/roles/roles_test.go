package roles

import (
	"slices"
	"testing"
)

// This test has the table of roles and needs a second time. Other tests compare each path, page and command with the table.
func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	all := []Role{Metrics, Viewer, Producer, Operator, Approver, Admin}
	for need, who := range map[Need][]Role{
		Undeclared: nil,
		Nothing:    all,
		AnyRole:    all,
		Scrape:     {Metrics, Viewer, Operator, Approver, Admin},
		Read:       {Viewer, Producer, Operator, Approver, Admin},
		Submit:     {Producer, Admin},
		View:       {Viewer, Operator, Approver, Admin},
		Operate:    {Operator, Admin},
		Approve:    {Approver, Admin},
		Administer: {Admin},
	} {
		for _, role := range all {
			if may := (Identity{Role: role}).May(need); may != slices.Contains(who, role) {
				t.Errorf("%s by %s: %t", need, role, may)
			}
		}
		if (Identity{}).May(need) != (need == Nothing) {
			t.Errorf("%s by nobody: %t", need, need != Nothing)
		}
	}
	if len(Needs()) != 9 || !slices.Equal(All(), all) {
		t.Errorf("the needs are %v, the roles %v", Needs(), All())
	}
}
