//go:build !unix

package httpapi

import "math"

// descriptors returns how many descriptors this process may have: unlimited on systems without a limit.
func descriptors() int { return math.MaxInt }
