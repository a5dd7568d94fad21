//go:build !unix

package testkit

// claim reports that a port may be taken. Tests run on Unix.
func claim(int) bool { return true }

func lock(string) (unlock func()) { return func() {} }
