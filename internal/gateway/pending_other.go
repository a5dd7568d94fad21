//go:build !unix

package gateway

import "net"

func pending(net.Conn) bool { return false }
