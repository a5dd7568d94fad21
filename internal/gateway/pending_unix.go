//go:build unix

package gateway

import (
	"net"
	"syscall"
)

// pending reports whether the kernel has something of the peer that was not read yet, be it the connection's end.
func pending(c net.Conn) bool {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	socket, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	var heard error
	err = socket.Control(func(fd uintptr) {
		var b [1]byte
		_, _, heard = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err == nil && heard != syscall.EAGAIN && heard != syscall.EINTR
}
