// Package packs contains what payment gateways document: one YAML file for each API, with the date and the
// addresses of its sources. A gateway whose configuration names a pack in like gets the keys below "gateway" of
// its file, unless it sets them itself.
//
// To add a pack, add a file: NAME-VERSION.yaml for the pack NAME/VERSION.
package packs

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"spillway/internal/job"
)

//go:embed *.yaml
var files embed.FS

// Pack is what is known of one API of a payment gateway.
type Pack struct {
	// Name is NAME/VERSION, the value of like in a configuration.
	Name string `yaml:"pack" json:"pack"`
	// Title is for lists; at most 60 characters.
	Title string `yaml:"title" json:"title"`
	// Read is the date on which its sources were read, YYYY-MM-DD.
	Read string `yaml:"read" json:"read"`
	// Sources are addresses, by the letters after the facts in the file.
	Sources map[string]string `yaml:"sources" json:"sources"`
	// Caveats are for users of the pack.
	Caveats []string `yaml:"caveats" json:"caveats"`
	// Limits are the limits that the provider publishes. Empty: none.
	Limits []Limit `yaml:"limits" json:"limits"`
	// Unverified are the keys of the gateway, as dotted paths, whose values have no source. A rule is
	// answers.rules.EVENT.
	Unverified []string `yaml:"unverified" json:"unverified"`
	// Gateway holds keys of a gateway, as in a configuration.
	Gateway map[string]any `yaml:"gateway" json:"gateway"`

	text []byte
}

// Limit is a limit that a provider publishes.
type Limit struct {
	Limit string `yaml:"limit" json:"limit"`
	// Per is what it applies to: account, endpoint, token, address and so on.
	Per string `yaml:"per" json:"per"`
}

// perEndpoint is the Per of a limit for one endpoint, like a configured gateway.
const perEndpoint = "endpoint"

// Text returns the file, with its comments.
func (p Pack) Text() []byte { return slices.Clone(p.text) }

// Endpoint returns the published limits of one endpoint; invalid ones are left out.
func (p Pack) Endpoint() (limits []job.Limit) {
	for _, l := range p.Limits {
		if limit, err := job.ParseLimit(l.Limit); err == nil && l.Per == perEndpoint {
			limits = append(limits, limit)
		}
	}
	return limits
}

// Age returns how long before now the sources were read; 0 if the date is invalid.
func (p Pack) Age(now time.Time) time.Duration {
	read, err := time.Parse(time.DateOnly, p.Read)
	if err != nil {
		return 0
	}
	return max(now.Sub(read), 0)
}

// Names returns the names of all packs, sorted.
func Names() []string {
	entries, _ := files.ReadDir(".") // it is embedded
	var all []string
	for _, e := range entries {
		stem := strings.TrimSuffix(e.Name(), ".yaml")
		if name, version, ok := strings.Cut(stem, "-"); ok {
			all = append(all, name+"/"+version)
		}
	}
	slices.Sort(all)
	return all
}

// Get returns the pack with that name, or an error with code not_found.
func Get(name string) (Pack, error) {
	text, err := files.ReadFile(strings.Replace(name, "/", "-", 1) + ".yaml")
	if err != nil || strings.Count(name, "/") != 1 {
		return Pack{}, unknown(name)
	}
	p := Pack{text: text}
	if err := yaml.UnmarshalWithOptions(text, &p, yaml.Strict()); err != nil {
		return Pack{}, fmt.Errorf("the pack %s can't be read: %w", name, err)
	}
	return p, nil
}

func unknown(name string) error {
	hint := "the packs are " + strings.Join(Names(), ", ")
	if near, ok := job.Nearest(name, Names()); ok {
		hint = fmt.Sprintf("did you mean %s? %s", near, hint)
	}
	return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("there is no pack %q", name), Hint: hint}
}
