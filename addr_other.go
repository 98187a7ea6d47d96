//go:build !unix

package sluice

func isAddrInUse(error) bool { return false }
