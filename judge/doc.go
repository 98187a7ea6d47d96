// Package judge holds Sluice's wires to the vendors' own SDKs. The SDK is the
// judge twice: pointed at our fake of the vendor's server it must read from an
// answer what our provider reads, so that the fake is not of our own making; and
// a request that our provider writes, decoded into the SDK's types and encoded
// again, must be the same request, so that it has nothing in it that the vendor
// does not know and nothing of it is lost.
//
// It is a module of its own, so that who uses Sluice as a library does not get
// the SDKs with it.
package judge
