//go:build invariants

package engine

// invariants has the loop verify its books after every step: what is wrong ends the
// engine with the step that it came from.
const invariants = true
