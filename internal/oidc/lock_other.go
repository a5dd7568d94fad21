//go:build !unix

package oidc

import "os"

// held reports whether another process has a directory's lock: there are no locks on this system.
func held(*os.File) bool { return false }
