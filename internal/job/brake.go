package job

import "fmt"

// Brake says when a batch stops itself: of its first calls that were answered with yes or no, so many were refused. The zero Brake never stops one.
type Brake struct {
	// Calls is how many calls are looked at; at least 2, or 0 for none.
	Calls int64
	// Refused is the share of them that stops the batch, in percent, 1 to 100.
	Refused int64
}

// Setting is the brake as the scripts read it (brake.lua).
func (b Brake) Setting() string {
	if b.Calls == 0 {
		return ""
	}
	return fmt.Sprintf("%d %d", b.Calls, (b.Calls*b.Refused+99)/100)
}
