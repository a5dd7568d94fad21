package job

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// MaxLane is the longest name of a lane, in bytes.
const MaxLane = 128

// LaneKey says where the jobs of a gateway have the name of their lane.
type LaneKey struct {
	// Field is the payload's field (dotted path) that is the lane. Empty: the job says it itself.
	Field string
	// Required says that no job may be without one, since its call has it.
	Required bool
}

// CheckLane returns why name can't name a lane, or nil.
func CheckLane(name string) error {
	switch {
	case name == "" || len(name) > MaxLane:
		return fmt.Errorf("the lane's name has %d bytes: give it 1 to %d", len(name), MaxLane)
	case !utf8.ValidString(name):
		return fmt.Errorf("the lane's name %q is not UTF-8", name)
	}
	for _, c := range name {
		if !unicode.IsPrint(c) {
			return fmt.Errorf("the lane's name has the character %q, which can't be printed", c)
		}
	}
	return nil
}
