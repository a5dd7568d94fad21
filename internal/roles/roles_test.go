package roles

import (
	"slices"
	"testing"
)

// Who may do what, written down once more: other tests ask each path, page and command, and go by the table that this one holds.
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
