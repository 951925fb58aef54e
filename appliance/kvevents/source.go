package kvevents

import "vapp.dev/engine/kv"

// Source is the prefix cache of one engine. Where one engine takes the place of another, only the newest Source that
// was made current is published.
type Source struct{ of *Publisher }

// NewSource returns a source that is not current yet: its changes are dropped.
func (p *Publisher) NewSource() *Source { return &Source{p} }

// MakeCurrent publishes the changes of s from now on, after AllBlocksCleared: its cache must be empty.
func (s *Source) MakeCurrent() {
	p := s.of
	p.choosing.Lock()
	defer p.choosing.Unlock()
	p.current = s
	p.Changed(kv.Layout{}, []kv.Change{{Op: kv.Cleared}})
}

// Changed is Publisher.Changed for the current source. Changes of others are dropped.
func (s *Source) Changed(l kv.Layout, changes []kv.Change) {
	s.of.choosing.Lock()
	defer s.of.choosing.Unlock()
	if s.of.current == s {
		s.of.Changed(l, changes)
	}
}
