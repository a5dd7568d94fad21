package main

import (
	"slices"

	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/seal"
)

// opener returns a function that opens payloads sealed by dlq export.
func opener(cfg *config.Config) func(gateway, id string, sealed []byte) ([]byte, error) {
	boxes := map[string]*seal.Box{}
	for _, g := range cfg.Gateways {
		boxes[g.Name] = dispatch.Box(g)
	}
	return func(gateway, id string, sealed []byte) ([]byte, error) { return boxes[gateway].Open(id, sealed) }
}

// amounts returns where the money stands in a gateway's payloads. If required is set, it says also whether a
// payload must have some, as configured.
func amounts(cfg *config.Config, required bool) func(string) job.AmountRule {
	return func(gateway string) job.AmountRule {
		g, _ := cfg.Gateway(gateway)
		rule := dispatch.AmountRule(g)
		rule.Required = rule.Required && required
		return rule
	}
}

// keys returns a check for ids that can't be part of a gateway's idempotency key. It is nil if every id can.
func keys(cfg *config.Config) func(gateway, id string) error {
	if !slices.ContainsFunc(cfg.Gateways, func(g config.Gateway) bool { return g.Request.Key.Picky() }) {
		return nil
	}
	return func(gateway, id string) error {
		g, _ := cfg.Gateway(gateway)
		return g.Request.Key.Check(id)
	}
}

// routes returns how to find the route of a job.
func routes(cfg *config.Config) func(gateway, route string) (string, error) {
	return func(gateway, route string) (string, error) {
		g, _ := cfg.Gateway(gateway)
		return g.Route(route)
	}
}

// classes returns how to find the class of a job.
func classes(cfg *config.Config) func(gateway, class string) (string, error) {
	return func(gateway, class string) (string, error) {
		g, _ := cfg.Gateway(gateway)
		return g.Class(class)
	}
}

// lanes returns how to find the lane key of a gateway.
func lanes(cfg *config.Config) func(gateway string) *job.LaneKey {
	return func(gateway string) *job.LaneKey {
		g, _ := cfg.Gateway(gateway)
		return g.LaneKey()
	}
}

// cards returns what to do with card numbers at a gateway.
func cards(cfg *config.Config) func(string) job.CardRule {
	return func(gateway string) job.CardRule {
		g, _ := cfg.Gateway(gateway)
		return g.Pan
	}
}

// mapsOf returns the map that makes a gateway's payloads. It is nil if no gateway has a map.
func mapsOf(cfg *config.Config) func(string) *job.Map {
	if !slices.ContainsFunc(cfg.Gateways, func(g config.Gateway) bool { return g.Map != nil }) {
		return nil
	}
	return func(gateway string) *job.Map {
		g, _ := cfg.Gateway(gateway)
		return g.Map
	}
}

// known returns whether a gateway is configured, and the highest cost that its limits can ever grant.
func known(cfg *config.Config) func(string) (int64, bool) {
	return func(gateway string) (int64, bool) {
		g, ok := cfg.Gateway(gateway)
		if !ok {
			return 0, false
		}
		return dispatch.MaxCost(g), true
	}
}
