package cli

import (
	"fmt"
	"slices"
	"strings"
)

// choice is a flag's value that must be one of a few words.
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

// Set takes one of the allowed words.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.words(), s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.words(), ", "))
	}
	*c.value = s
	return nil
}

// Type names the value in the help.
func (c *choice) Type() string { return strings.Join(c.words(), "|") }

// words are the allowed ones without the empty one, which says that the flag was not given.
func (c *choice) words() []string {
	return slices.DeleteFunc(slices.Clone(c.allowed), func(s string) bool { return s == "" })
}
