//go:build !race

package conformance

const underRace = false
