//go:build race

package conformance

// The race detector makes copies of megabytes twenty times slower: with it the
// sizes are small, and `make test` runs them once more without it.
const underRace = true
