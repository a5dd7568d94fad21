package job

import "fmt"

// Brake says when a batch stops itself, by the share of refusals among its first calls that were answered yes
// or no. The zero Brake never stops a batch.
type Brake struct {
	// Calls is how many calls are counted, at least 2. Zero means no brake.
	Calls int64
	// Refused is the share of refusals that stops the batch, in percent, 1 to 100.
	Refused int64
}

// Setting returns the brake in the form that scripts read (brake.lua).
func (b Brake) Setting() string {
	if b.Calls == 0 {
		return ""
	}
	return fmt.Sprintf("%d %d", b.Calls, (b.Calls*b.Refused+99)/100)
}
