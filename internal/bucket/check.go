package bucket

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"spillway/internal/job"
)

// check returns why the configuration can't be kept, or nil.
func (c PacerConfig) check() error {
	switch {
	case c.Gateway == "" || strings.ContainsAny(c.Gateway, "{}"):
		return fmt.Errorf("the pacer has no usable gateway name (%q): give the gateway's name", c.Gateway)
	case len(c.Limits) == 0:
		return errors.New("the gateway has no limit: give at least one, such as 100/s")
	case len(c.Limits) > MaxLimits:
		return fmt.Errorf("the gateway has %d limits: give at most %d", len(c.Limits), MaxLimits)
	case c.Jitter < 0 || c.CallTimeout < 0 || c.MaxInFlight < 0 || c.Burst < 0 || c.Version < 0:
		return errors.New("burst, jitter, timeout, calls in flight and version can't be negative: give 0 or more")
	}
	for _, l := range c.Limits {
		if err := check(l); err != nil {
			return err
		}
		if l.Window > longestW {
			return fmt.Errorf("the limit %s has a window of more than a year: give a shorter one", l)
		}
		if c.Burst > l.N {
			return fmt.Errorf("the burst of %d is above the limit %s: make it at most %d", c.Burst, l, l.N)
		}
	}
	return c.checkLanes()
}

// checkLanes is check for lanes and routes.
func (c PacerConfig) checkLanes() error {
	if l := c.Lanes; l != nil && (l.Weight < 0 || l.Weight > MaxWeight) {
		return fmt.Errorf("lanes have a weight of %d: give one from 1 to %d", l.Weight, MaxWeight)
	}
	if c.Lanes != nil && len(c.Lanes.Limits) > mostLimits {
		return fmt.Errorf("lanes have %d limits: give at most %d", len(c.Lanes.Limits), mostLimits)
	}
	if c.Lanes != nil && c.Lanes.MaxInFlight < 0 {
		return errors.New("lanes have a cap of calls in flight below 0: give 0 or more")
	}
	for _, r := range c.Routes {
		if r.MaxInFlight < 0 {
			return fmt.Errorf("the route %s has a cap of calls in flight below 0: give 0 or more", r.Name)
		}
		if len(r.Limits) > mostLimits {
			return fmt.Errorf("the route %s has %d limits: give at most %d", r.Name, len(r.Limits), mostLimits)
		}
	}
	least := 2 * (c.Jitter + reachBeyond)
	for _, l := range c.beside() {
		switch err := check(l); {
		case err != nil:
			return err
		case l.Window > longestW:
			return fmt.Errorf("the limit %s has a window of more than a year: give a shorter one", l)
		case l.Window < least:
			return fmt.Errorf("the limit %s of a lane or route has a window that is too short: give one of at least %s, twice the jitter and 20 ms", l, least)
		}
	}
	return nil
}

// check returns why a limit can't be kept, or nil.
func check(l job.Limit) error {
	switch {
	case l.N < 1 || l.N > job.MaxCount:
		return fmt.Errorf("the limit %s allows %d calls: give a number from 1 to %d", l, l.N, int64(job.MaxCount))
	case l.Window < time.Microsecond || l.Window%time.Microsecond != 0:
		return fmt.Errorf("the limit %s has a window of %s: give a whole number of microseconds, at least one", l, l.Window)
	}
	return nil
}
