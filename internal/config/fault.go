package config

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
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

// mostAlike is how many faults of one kind are told one by one.
const mostAlike = 10

// bounded tells of many faults of one kind the first ones, and of those at one place the first: the last one told has the number of the others.
func (f Faults) bounded() Faults {
	var told Faults
	more, kinds := map[*Fault]int{}, map[string][]*Fault{}
	for _, one := range f {
		kind := one.kind()
		of := kinds[kind]
		if n := len(of); n > 0 && (n == mostAlike || of[n-1].Position == one.Position) {
			more[of[n-1]]++
			continue
		}
		kinds[kind] = append(of, one)
		told = append(told, one)
	}
	for one, n := range more {
		one.Message += " (and " + grouped(n) + " more like it)"
	}
	return told
}

var (
	ofGateway  = regexp.MustCompile(`^gateways\.[^.]*`)
	particular = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\$\{[^}]*\}|[0-9]+`)
)

// kind is what two faults share that say the same of two gateways.
func (f *Fault) kind() string {
	return f.File + "\x00" + ofGateway.ReplaceAllString(f.Field, "") + "\x00" + particular.ReplaceAllString(f.Message, "")
}

// grouped writes a number with a comma between thousands.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// compare orders two places of one file, and of several the files by name.
func (p Position) compare(other Position) int {
	return cmp.Or(cmp.Compare(p.File, other.File), p.Line-other.Line, p.Column-other.Column)
}

// Unwrap returns the faults one by one.
func (f Faults) Unwrap() []error {
	all := make([]error, len(f))
	for i, one := range f {
		all[i] = one
	}
	return all
}
