//go:build unix

package h1

import (
	"net"
	"syscall"
)

// alive looks, without waiting, whether an idle connection is still whole: open,
// and with nothing to read (an upstream that speaks unasked is out of step).
func alive(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	whole := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		whole = err == syscall.EAGAIN // nothing to read, and no end
		return true
	})
	return err == nil && whole
}
