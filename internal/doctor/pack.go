package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/packs"
)

// packAge is how old the information in a pack may be: providers change their documentation.
const packAge = 180 * 24 * time.Hour

// lintPack reports where a gateway's configuration contradicts its pack, and which values of the pack are
// unverified.
func lintPack(g config.Gateway) (found []Check) {
	if g.Pack == "" {
		return nil
	}
	const name = "pack"
	p, err := packs.Get(g.Pack)
	if err != nil {
		return []Check{warn(name, g.Name, "name a pack that dispatcher packs list has", "%v", err)}
	}
	if c, bad := lifetimeOver(g, p); bad {
		found = append(found, c)
	}
	for _, published := range p.Endpoint() {
		if is := rate(g.Leak.Limits); is > rate([]job.Limit{published})*1.000001 {
			found = append(found, warn(name, g.Name, fmt.Sprintf("write leak: {limits: [%s]}, unless the gateway has promised you more", published),
				"leak.limits allow %s, and %s publishes %s for one endpoint: it will answer 429", perSecond(is), p.Title, published))
		}
	}
	if old := p.Age(time.Now()); old > packAge {
		found = append(found, warn(name, g.Name, "compare dispatcher packs show "+p.Name+" with the gateway's documents, or take a newer version of this program",
			"what %s documents was read on %s, %d days ago", p.Title, p.Read, int(old.Hours()/24)))
	}
	if rests := unverified(g, p); len(rests) > 0 {
		found = append(found, warn(name, g.Name, "look them up in the gateway's documents, and write them into the configuration: then they are yours",
			"no source was found for what the pack %s says of %s", p.Name, strings.Join(rests, ", ")))
	}
	return found
}

// lifetimeOver compares the configured key lifetime with the one that the gateway publishes.
func lifetimeOver(g config.Gateway, p packs.Pack) (c Check, bad bool) {
	published, ok := config.PackLifetime(p)
	switch trusted := g.Request.KeyLifetime; {
	case !g.Request.Key.Any():
		return c, false
	case !ok && trusted > config.DefaultGateway().Request.KeyLifetime:
		return warn("pack", g.Name, "ask the gateway how long it keeps a key, and write no more than it says",
			"keys are trusted for %s (request.key_lifetime), and %s publishes no lifetime: a late retry may charge twice", job.FormatDuration(trusted), p.Title), true
	case ok && trusted > published:
		return warn("pack", g.Name, fmt.Sprintf("write request.key_lifetime: %s, or leave it out", job.FormatDuration(published)),
			"keys are trusted for %s (request.key_lifetime), and %s keeps them for %s: a late retry charges twice", job.FormatDuration(trusted), p.Title, job.FormatDuration(published)), true
	}
	return c, false
}

// unverified returns the pack's values without a source that are in force at the gateway.
func unverified(g config.Gateway, p packs.Pack) []string {
	return slices.DeleteFunc(slices.Clone(p.Unverified), func(path string) bool {
		event, rule := strings.CutPrefix(path, "answers.rules.")
		switch {
		case rule:
			return !slices.ContainsFunc(g.Answers.Rules, func(r job.Rule) bool { return r.Event == event })
		case path == "request.oauth2.token_url":
			return !g.Request.OAuth2.On || g.Request.OAuth2.TokenURL.Reveal() != config.PackTokenURL(p)
		case path == "request.key_lifetime":
			published, ok := config.PackLifetime(p)
			return ok && g.Request.KeyLifetime != published
		case path == "lookup" || strings.HasPrefix(path, "lookup."):
			return !g.Asked()
		case strings.HasPrefix(path, "leak."):
			return cmp.Compare(rate(g.Leak.Limits), rate(packLimits(p))) != 0
		}
		return false
	})
}

// packLimits returns the pack's own limits; nil if it leaves them to the configuration.
func packLimits(p packs.Pack) (all []job.Limit) {
	leak, _ := p.Gateway["leak"].(map[string]any)
	texts, _ := leak["limits"].([]any)
	for _, text := range texts {
		if l, err := job.ParseLimit(fmt.Sprint(text)); err == nil {
			all = append(all, l)
		}
	}
	return all
}
