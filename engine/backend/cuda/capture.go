//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// captured is a captured step: graphs and single launches in turn.
type captured struct {
	list  *driver.List
	work  []workList
	draws [2]int // executable.draws
	parts []part
}

// part is a range of a list: one graph, or single launches if graph is nil.
type part struct {
	from, to int
	graph    *driver.Graph
	draws    bool // a step without rows that draw goes without it
}

var _ backend.Capturer = (*device)(nil)

// Capture captures the graphs of a step of g. A graph repeats the arguments of its capture;
// everything that changes from step to step is in step buffers.
func (d *device) Capture(e backend.Executable, set int, g backend.Graph) error {
	x, ok := e.(*executable)
	if !ok || x.d != d || d.r.Step.CheckSet(set) != nil || g.Kind == backend.Eager || g.Tokens < 1 || g.Tokens > x.p.Bucket.Tokens || g.Seqs > x.p.Bucket.Seqs || g.Samples > x.p.Bucket.Samples {
		return fmt.Errorf("backend %s: Capture of %v on set %d: no step of this program", name, g, set)
	}
	return d.named(d.do(func() error {
		if err := d.staging.close(d.ctx); err != nil {
			return err
		}
		if err := d.loadProducts(x, set, g); err != nil {
			return err
		}
		before, _, err := d.ctx.Memory()
		if err != nil {
			return err
		}
		c, err := d.capture(x, set, g)
		if err != nil {
			return errors.Join(err, c.close())
		}
		after, _, err := d.ctx.Memory()
		if err != nil {
			return errors.Join(err, c.close())
		}
		d.graphBytes += max(0, before-after)
		if x.graphs[set] == nil {
			x.graphs[set] = map[backend.Graph]*captured{}
		}
		if old := x.graphs[set][g]; old != nil {
			err = old.close()
		}
		x.graphs[set][g] = c
		d.captured = append(d.captured, c)
		return err
	}))
}

// loadProducts loads onto the device the library's kernels that the steps of g use first.
func (d *device) loadProducts(x *executable, set int, g backend.Graph) error {
	i := x.variant(g)
	if d.blas == nil || i < 0 {
		return nil
	}
	list := x.lists[set][i]
	return list.Load(d.work.Stream, 0, list.Len(), bound(g.Tokens, g.Seqs, g.Samples))
}

// GraphBytes returns by how much the device's free memory fell during captures.
func (d *device) GraphBytes() int64 { return d.graphBytes }

// capture captures the list of g's variant, split at the program's segments.
func (d *device) capture(x *executable, set int, g backend.Graph) (*captured, error) {
	i := x.variant(g)
	if i < 0 {
		return &captured{}, fmt.Errorf("no list of launches holds %v", g)
	}
	c, starts := &captured{list: x.lists[set][i], work: x.work[i], draws: x.draws[i]}, x.starts[i]
	for _, s := range backend.Segments(x.p, g.Kind) {
		for _, p := range c.split(part{from: starts[s.From], to: starts[s.To]}, s.Graph) {
			if s.Graph {
				var err error
				if p.graph, err = d.work.Capture(func() error { return c.record(d, p, bound(g.Tokens, g.Seqs, g.Samples)) }); err != nil {
					return c, fmt.Errorf("launches %d to %d: %w", p.from, p.to, err)
				}
			}
			c.parts = append(c.parts, p)
		}
	}
	return c, nil
}

// split returns a part, or a part of a graph that ends with the launches for drawing rows as two: they are a graph of their own, which
// other steps go without.
func (c *captured) split(p part, graph bool) []part {
	switch at := c.draws[0]; {
	case p.from == p.to:
		return nil
	case graph && c.draws[1] == p.to && p.from < at && at < p.to:
		return []part{{from: p.from, to: at}, {from: at, to: p.to, draws: true}}
	}
	return []part{p}
}

// variant returns the index of the list for g's steps, or −1. Only a Decode graph with one
// token for each sequence uses a list for decoding; other graphs take any mix.
func (e *executable) variant(g backend.Graph) int {
	for i, v := range e.variants {
		if max(g.Tokens, g.Seqs, g.Samples) <= v.rows && (!v.decode || g.Kind == backend.Decode && g.Tokens == g.Seqs) {
			return i
		}
	}
	return -1
}

// record launches a part into a capture.
func (c *captured) record(d *device, p part, n [driver.NumBound]int32) error {
	return c.list.Run(d.work.Stream, p.from, p.to, n)
}

// replay runs a step: its graphs, and single launches with the real row counts for the rest.
func (d *device) replay(c *captured, b backend.Binding) error {
	for i := range c.parts {
		p := &c.parts[i]
		if p.graph == nil {
			if err := d.run(c.list, p.from, p.to, c.draws, b); err != nil {
				return err
			}
			continue
		}
		if p.draws && !d.drawn(b) {
			continue
		}
		if err := p.graph.Launch(d.work.Stream); err != nil {
			return err
		}
	}
	return nil
}

// close frees the graphs.
func (c *captured) close() error {
	var errs []error
	for i := range c.parts {
		if g := c.parts[i].graph; g != nil {
			errs = append(errs, g.Close())
			c.parts[i].graph = nil
		}
	}
	return errors.Join(errs...)
}

// padded returns b with the row counts of its graph.
func padded(b backend.Binding) backend.Binding {
	b.Tokens, b.Seqs, b.Samples = max(b.Tokens, b.Graph.Tokens), max(b.Seqs, b.Graph.Seqs), max(b.Samples, b.Graph.Samples)
	return b
}
