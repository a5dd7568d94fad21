//go:build unix

package httpapi

import (
	"math"
	"syscall"
)

// descriptors returns how many descriptors this process may have; unlimited if unknown.
func descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(min(uint64(limit.Cur), math.MaxInt))
}
