package remote

import "spillway/internal/roles"

// What shows payloads, or repairs, needs more than the rest of its operation. Undeclared: it does not.

func dear(dearer bool) roles.Need {
	if dearer {
		return roles.Operate
	}
	return roles.Undeclared
}

// NeedsToo says what a request needs besides.
func (q JobOf) NeedsToo() roles.Need { return dear(q.Payload) }

// NeedsToo says what a request needs besides.
func (q DeadLettersOf) NeedsToo() roles.Need { return dear(q.Payload) }

// NeedsToo says what a request needs besides: an export has payloads whatever is asked for.
func (q DeadExportOf) NeedsToo() roles.Need { return roles.Operate }

// NeedsToo says what a request needs besides: what is found by its payload is read in the payload.
func (q SearchOf) NeedsToo() roles.Need { return dear(len(q.Fields) > 0) }

// NeedsToo says what a request needs besides.
func (e ExportAs) NeedsToo() roles.Need { return dear(len(e.Fields) > 0) }

// NeedsToo says what a request needs besides.
func (q AuditOf) NeedsToo() roles.Need { return dear(q.Repair) }

// NeedsToo returns what a request of Request needs besides its operation's Need; Undeclared: nothing.
func NeedsToo(request any) roles.Need {
	if r, is := request.(interface{ NeedsToo() roles.Need }); is {
		return r.NeedsToo()
	}
	return roles.Undeclared
}
