//go:build invariants

package engine

// invariants makes the loop verify the scheduler and the page pools after every step. An
// inconsistency ends the engine with an error that names the step.
const invariants = true
