//go:build !linux

package fakeopenai

import "net"

// peerClosed is not known here: net/http reports the end some time later.
func peerClosed(net.Conn) bool { return false }
