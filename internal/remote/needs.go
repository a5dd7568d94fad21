package remote

import "spillway/internal/roles"

// Showing payloads, and repairing, need more than the rest of an operation. Undeclared means that nothing more is
// needed.

func dear(dearer bool) roles.Need {
	if dearer {
		return roles.Operate
	}
	return roles.Undeclared
}

// NeedsToo returns what a request needs in addition.
func (q JobOf) NeedsToo() roles.Need { return dear(q.Payload) }

// NeedsToo returns what a request needs in addition.
func (q DeadLettersOf) NeedsToo() roles.Need { return dear(q.Payload) }

// NeedsToo returns what a request needs in addition: an export always contains payloads.
func (q DeadExportOf) NeedsToo() roles.Need { return roles.Operate }

// NeedsToo returns what a request needs in addition: a search by payload reads payloads.
func (q SearchOf) NeedsToo() roles.Need { return dear(len(q.Fields) > 0) }

// NeedsToo returns what a request needs in addition.
func (e ExportAs) NeedsToo() roles.Need { return dear(len(e.Fields) > 0) }

// NeedsToo returns what a request needs in addition.
func (q AuditOf) NeedsToo() roles.Need { return dear(q.Repair) }

// NeedsToo returns what a request of Request needs in addition to its operation's Need; Undeclared: nothing.
func NeedsToo(request any) roles.Need {
	if r, is := request.(interface{ NeedsToo() roles.Need }); is {
		return r.NeedsToo()
	}
	return roles.Undeclared
}
