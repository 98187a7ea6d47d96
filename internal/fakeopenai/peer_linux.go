package fakeopenai

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// TCP states of a connection whose far side has closed or reset it, as in the
// kernel's include/net/tcp_states.h.
const (
	tcpClose     = 7
	tcpCloseWait = 8
	tcpLastAck   = 9
	tcpClosing   = 11
)

// peerClosed reports whether the kernel has had the far side's FIN or RST. It
// reads nothing from the connection, so it disturbs no reader.
func peerClosed(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	closed := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		switch info.State {
		case tcpClose, tcpCloseWait, tcpLastAck, tcpClosing:
			closed = true
		}
	})
	return closed || err != nil
}
