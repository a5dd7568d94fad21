package job

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// MaxLane is the longest lane name, in bytes.
const MaxLane = 128

// LaneKey says where a gateway's jobs have their lane.
type LaneKey struct {
	// Field is the payload field (dotted path) that names the lane. Empty means that the job names it itself.
	Field string
	// Required refuses jobs without a lane, because the call contains it.
	Required bool
}

// CheckLane returns why name can't be a lane's name, or nil.
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

// Class is a priority class of jobs. Jobs of a higher class are called first.
type Class struct {
	Name string
	// Floor is the least share, in percent, of first calls that the class gets while it has jobs never called;
	// 0 = none.
	Floor int64
	// Usual marks the default class, of jobs that name none.
	Usual bool
}
