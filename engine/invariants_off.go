//go:build !invariants

package engine

// invariants is off: the loop trusts its books. `make test` builds with the tag.
const invariants = false
