package desk

import (
	"slices"

	"spillway/internal/config"
	"spillway/internal/dispatch"
)

// Choose returns the configured gateways with these names, or all, in configured order. An error with code
// not_found says that one of them is not configured.
func Choose(cfg *config.Config, names []string) ([]config.Gateway, error) {
	if len(names) == 0 {
		return cfg.Gateways, nil
	}
	for _, n := range names {
		if _, ok := cfg.Gateway(n); !ok {
			return nil, dispatch.NoGateway(cfg, n)
		}
	}
	return slices.DeleteFunc(slices.Clone(cfg.Gateways), func(g config.Gateway) bool { return !slices.Contains(names, g.Name) }), nil
}
