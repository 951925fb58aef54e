package sched

import (
	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
)

// Spec is what a sequence is made of.
type Spec struct {
	ID       string
	Prompt   []int32        // at least one token; kept, not copied
	Params   *sample.Params // validated; shared by the choices of a request
	Seed     uint64         // of this choice
	Priority int            // lower runs first, under Priority
	Salt     string         // separates prefix-cache contents
	// Lead is the first choice of the same prompt, nil for that one itself. With
	// prefix caching a sequence waits until its Lead's prompt is computed and
	// then shares its pages.
	Lead *Seq
}

// Seq is one choice of a request on its way through the scheduler.
type Seq struct {
	spec   Spec
	tokens []int32 // prompt and committed output
	table  kv.Table
	cached int
}

// NewSeq makes a sequence for Add.
func NewSeq(s Spec) *Seq { return &Seq{spec: s} }

// ID is the request's.
func (s *Seq) ID() string { return s.spec.ID }

// Params are the request's.
func (s *Seq) Params() *sample.Params { return s.spec.Params }

// Seed is of the request and choice.
func (s *Seq) Seed() uint64 { return s.spec.Seed }

// Prompt is the prompt's tokens.
func (s *Seq) Prompt() []int32 { return s.spec.Prompt }

// Output is the tokens committed so far.
func (s *Seq) Output() []int32 { return s.tokens[len(s.spec.Prompt):] }

// Cached is how many prompt tokens came from the prefix cache when the sequence
// was first scheduled.
func (s *Seq) Cached() int { return s.cached }

// Pages is the sequence's page table of a class, valid until the next call of
// the Scheduler.
func (s *Seq) Pages(class int) []int32 { return s.table.Pages(class) }
