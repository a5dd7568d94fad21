package desk

import (
	"fmt"
	"slices"
	"time"
)

// Overload is a dispatcher that is too slow for its gateways' limits, although it calls as fast as it can.
type Overload struct {
	Process string    `json:"process"` // HOST.PID
	Since   time.Time `json:"since"`
	Slots   int64     `json:"slots_in_hand_at_most"` // it takes no more slots than it can use
	// Gateways are those for which it reported this.
	Gateways []string `json:"-"`
}

// overloads returns the dispatchers that are too slow, each once with all of its gateways, in the order of
// their first gateways.
func overloads(all []Status) (found []Overload) {
	for _, s := range all {
		for _, o := range s.Overloaded {
			i := slices.IndexFunc(found, func(f Overload) bool { return f.Process == o.Process })
			if i < 0 {
				i, found = len(found), append(found, Overload{Process: o.Process, Since: o.Since, Slots: o.Slots})
			}
			f := &found[i]
			f.Gateways = append(f.Gateways, s.Gateway)
			if o.Since.Before(f.Since) {
				f.Since = o.Since
			}
		}
	}
	return found
}

func (o Overload) need() Need {
	return Need{Kind: NeedOverload, Gateway: o.Gateways[0], What: fmt.Sprintf("%s: the dispatcher %s is too slow for the limits, and calls as fast as it can", firstNames(o.Gateways), o.Process),
		Since: when(o.Since), Do: "run dispatchers on more machines, or give that one and Redis more processors", Runbook: NeedOverload.Runbook()}
}
