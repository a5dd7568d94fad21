//go:build !unix

package httpapi

import "math"

// descriptors returns how many descriptors this process may have: no system without a limit of them runs out as soon.
func descriptors() int { return math.MaxInt }
