package config

import (
	"fmt"
	"strings"
)

// Fault is one thing that is wrong with a configuration file. It never holds the value of a secret.
type Fault struct {
	// Position is where; Line is 0 when the file as a whole is meant (it isn't there, say).
	Position
	// Field is the dotted path, such as gateways.stripe.leak.limits[0]. Empty when no single field is meant.
	Field string
	// Message says what is wrong, then what to do.
	Message string
}

// Error returns file:line:column: field: message.
func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	if f.Field != "" {
		b.WriteString(": " + f.Field)
	}
	b.WriteString(": " + f.Message)
	return b.String()
}

// Faults is everything that is wrong with a configuration file, in the order of the file; never empty as an error.
type Faults []*Fault

// Error returns the faults, one a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults one by one.
func (f Faults) Unwrap() []error {
	all := make([]error, len(f))
	for i, one := range f {
		all[i] = one
	}
	return all
}
