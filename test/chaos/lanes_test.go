package chaos

import (
	"fmt"
	"strings"
	"testing"
)

// laneActs returns what operators do to single lanes, if all gateways have lanes.
func (c *chaos) laneActs() map[string]act {
	do := func(act string, e event, flags ...string) result {
		a := c.contracts()[e.pick%uint64(len(accounts))]
		lane := merchant(int(e.pick >> 8 & 7))
		if strings.Contains(a.rest, "payload.amount") {
			lane = fmt.Sprint(100 + e.pick>>8&7)
		}
		return c.try(20*sec, "dispatcher", append([]string{"lane", act, "-g", a.name, lane}, flags...)...)
	}
	insist := func(act string, e event) func() {
		return func() {
			for do(act, e).code != 0 && !c.finishing() {
			}
		}
	}
	return map[string]act{
		"lane set": func(e event) func() { // to less, since the provider checks the limit of the file
			do("set", e, "--limits", fmt.Sprintf("%d/s", 1+e.pick>>16&1), "--weight", fmt.Sprint(1+e.pick>>20&3))
			return insist("reset", e)
		},
		"lane pause": func(e event) func() {
			do("pause", e, "--why", "chaos")
			return insist("resume", e)
		},
	}
}

// resetLanes resets what may still be set for lanes of a gateway.
func (c *chaos) resetLanes(a contract) {
	for i := range 8 {
		if !c.laned {
			return
		}
		lane := merchant(i)
		if strings.Contains(a.rest, "payload.amount") {
			lane = fmt.Sprint(100 + i)
		}
		c.direct("dispatcher", "lane", "resume", "-g", a.name, lane)
		c.direct("dispatcher", "lane", "reset", "-g", a.name, lane)
	}
}

// The provider of a gateway with lanes checks the same limit for each lane as the file has.
func TestTheProviderHoldsEachLanesLimit(t *testing.T) {
	t.Parallel()
	c := &chaos{laned: true}
	for _, a := range c.contracts() {
		for _, l := range a.provider.Limits {
			if l.By != "" && !strings.Contains(a.rest, fmt.Sprintf("limits: [%d/s], header:", l.N)) {
				t.Errorf("%s: the provider holds %v for each lane, and the file says\n%s", a.name, l, a.rest)
			}
		}
		if limits := ofAll(a.provider.Limits); len(limits) == len(a.provider.Limits) {
			t.Errorf("%s has no limit for each lane: %v", a.name, limits)
		}
	}
	if c.laned = false; len(c.contracts()[0].provider.Limits) != 1 {
		t.Errorf("without lanes: %v", c.contracts()[0].provider.Limits)
	}
}
