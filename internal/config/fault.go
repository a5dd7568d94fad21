package config

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Fault is one fault of a configuration file. It never contains the value of a secret.
type Fault struct {
	// Position is where it is; Line is 0 if it concerns the whole file, for example because it does not exist.
	Position
	// Field is the dotted path, such as gateways.stripe.leak.limits[0]. Empty if it concerns no single field.
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

// Faults are all faults of a configuration file, in file order; as an error it is never empty.
type Faults []*Fault

// Error returns the faults, one a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// mostAlike is how many faults of one kind are reported individually.
const mostAlike = 10

// bounded keeps the first of many faults of one kind, and the first of those at one position. The last one kept
// mentions the number of the others.
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

// kind returns a text that is equal for the same fault at two gateways.
func (f *Fault) kind() string {
	return f.File + "\x00" + ofGateway.ReplaceAllString(f.Field, "") + "\x00" + particular.ReplaceAllString(f.Message, "")
}

// grouped formats a number with commas between thousands.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// compare orders positions by file name, then by position in the file.
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
