//go:build !invariants

package engine

// invariants is off: the loop does not verify its state. `make test` builds with the tag.
const invariants = false
