package cli

import (
	"fmt"
	"regexp"

	"spillway/internal/job"
)

// mostAlike is how many lines with the same fault are listed: a million of them would hide all others.
const mostAlike = 100

// Faults limits the reports on unusable lines. The zero value has no reports.
type Faults struct {
	kinds map[string]*faultKind
	order []*faultKind
	last  *faultKind // usually the next one's, too
}

// faultKind is faults that differ only in names and numbers.
type faultKind struct {
	first string
	lines int64
}

// varying matches what differs between two texts of one fault.
var varying = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|[0-9]+`)

// Add reports whether to print the fault.
func (f *Faults) Add(why string) bool {
	k := f.last
	if k == nil || k.first != why {
		k = f.kind(why)
	}
	k.lines++
	f.last = k
	return k.lines <= mostAlike
}

func (f *Faults) kind(why string) *faultKind {
	name := varying.ReplaceAllString(why, "")
	if k := f.kinds[name]; k != nil {
		return k
	}
	if f.kinds == nil {
		f.kinds = map[string]*faultKind{}
	}
	k := &faultKind{first: why}
	f.kinds[name], f.order = k, append(f.order, k)
	return k
}

// More says how many faults were not printed, a line for each kind.
func (f *Faults) More() (all []string) {
	for _, k := range f.order {
		if n := k.lines - mostAlike; n > 0 {
			all = append(all, fmt.Sprintf("%s: and %s more like it", k.first, job.CountText(n)))
		}
	}
	return all
}
