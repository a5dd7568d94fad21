package cli

import (
	"fmt"
	"slices"
	"strings"
)

// once is a flag value that may be given only once: otherwise the last one would silently win.
type once struct {
	value *string
	given bool
}

// String returns the value.
func (o *once) String() string {
	if o.value == nil {
		return ""
	}
	return *o.value
}

// Set accepts the first value.
func (o *once) Set(s string) error {
	if o.given {
		return fmt.Errorf("it was given already, as %q", *o.value)
	}
	*o.value, o.given = s, true
	return nil
}

// Type names the value in the help.
func (o *once) Type() string { return "string" }

// choice is a flag value that must be one of a few words.
type choice struct {
	value   *string
	allowed []string
	unset   string
}

// String returns the word, or the default before the flag was set.
func (c *choice) String() string {
	if c.value == nil || *c.value == "" {
		return c.unset
	}
	return *c.value
}

// Set accepts one of the allowed words.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.words(), s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.words(), ", "))
	}
	*c.value = s
	return nil
}

// Type names the value in the help.
func (c *choice) Type() string { return strings.Join(c.words(), "|") }

// words returns the allowed words without the empty one, which means that the flag was not given.
func (c *choice) words() []string {
	return slices.DeleteFunc(slices.Clone(c.allowed), func(s string) bool { return s == "" })
}
