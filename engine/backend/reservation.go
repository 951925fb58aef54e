package backend

import "fmt"

// Place checks that r's arenas hold everything it lists, as layout l of the named backend
// computes it. It returns the offset of each weight in the Weights arena.
func (r *Reservation) Place(backend string, l Layout) (offsets []int64, err error) {
	for _, p := range r.Programs {
		if err := r.Holds(backend, l, p); err != nil {
			return nil, err
		}
	}
	if n := r.Step.Bytes(); n > r.Arenas[StepIO] {
		return nil, Short(backend, "step buffers", n, r.Arenas[StepIO])
	}
	for _, a := range []struct {
		arena Arena
		bytes int64
	}{{Item, r.Encoder.ItemBytes()}, {Encoded, r.Encoder.EncodedBytes()}} {
		if a.bytes > r.Arenas[a.arena] {
			return nil, Short(backend, fmt.Sprintf("the %v arena", a.arena), a.bytes, r.Arenas[a.arena])
		}
	}
	if len(r.Packed) != len(r.Weights) {
		return nil, fmt.Errorf("backend %s: reservation: %d weights, %d are laid out", backend, len(r.Weights), len(r.Packed))
	}
	var at int64
	for i, w := range r.Weights {
		p, err := l.Weight(w)
		if err != nil {
			return nil, err
		}
		if p != r.Packed[i] {
			return nil, fmt.Errorf("backend %s: reservation: weight %s was laid out for another machine or setting (%s, here %s)", backend, w.Name, r.Packed[i].Kernel, p.Kernel)
		}
		offsets = append(offsets, at)
		at += p.Bytes
	}
	if at > r.Arenas[Weights] {
		return nil, Short(backend, "weights", at, r.Arenas[Weights])
	}
	for a, n := range r.Arenas {
		if n < 0 || n != l.Round(n) {
			return nil, Short(backend, fmt.Sprintf("the %v arena is not rounded:", Arena(a)), l.Round(n), n)
		}
	}
	return offsets, nil
}

// Holds returns an error unless p runs on the layout and fits in the arenas.
func (r *Reservation) Holds(backend string, l Layout, p *Program) error {
	if err := l.Runs(p.Weights, p); err != nil {
		return err
	}
	work, err := WorkLists(l, []*Program{p})
	if err != nil {
		return err
	}
	if have := r.Step.Work; work > have {
		return Short(backend, "lists of work of program "+p.Name, 4*int64(work), 4*int64(have))
	}
	n, err := l.Workspace(p)
	if err != nil {
		return err
	}
	if have := r.Arenas[Workspace]; n > have {
		return Short(backend, "program "+p.Name, n, have)
	}
	if have := r.Arenas[Scratch]; p.Scratch > have {
		return Short(backend, "program "+p.Name, p.Scratch, have)
	}
	return nil
}

// Takes returns an error unless p is a valid program of r: it passes Check, fits in r's step
// buffers and arenas, and its pages hold a multiple of 16 tokens.
func (r *Reservation) Takes(backend string, l Layout, p *Program) error {
	if p.Scratch > r.Arenas[Scratch] || len(p.Weights) != len(r.Weights) {
		return fmt.Errorf("backend %s: program %s is not one of the reservation", backend, p.Name)
	}
	_, halves := l.(ActivationLayout)
	if err := p.check(halves); err != nil {
		return err
	}
	if len(p.Ops) == 0 {
		return fmt.Errorf("backend %s: program %s has no ops", backend, p.Name)
	}
	if p.Encodes() {
		if err := p.FitsEncoder(r.Encoder); err != nil {
			return err
		}
	} else if err := p.Fits(r.Step); err != nil {
		return err
	}
	if err := r.Holds(backend, l, p); err != nil {
		return err
	}
	for _, c := range p.Classes {
		if c.State == nil && (c.BlockSize <= 0 || c.BlockSize%16 != 0) || c.PagesPerSlab <= 0 {
			return Unsupported(backend, "class "+c.Name, fmt.Sprintf("%d tokens a page, %d pages a slab; a page holds a multiple of 16", c.BlockSize, c.PagesPerSlab))
		}
	}
	return nil
}

// Short returns the error of a reservation that is too small; need and have are bytes.
func Short(backend, what string, need, have int64) error {
	return fmt.Errorf("backend %s: reservation: %s needs %d bytes, %d are reserved", backend, what, need, have)
}
