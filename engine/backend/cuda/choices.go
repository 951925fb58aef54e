package cuda

import (
	"fmt"

	"vapp.dev/engine/backend"
)

var _ backend.KernelChooser = layout{}

// KernelChoices implements backend.KernelChooser. Lowering and the workspace use the same
// choices.
func (l layout) KernelChoices(p *backend.Program) ([]backend.KernelChoice, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	var out []backend.KernelChoice
	at := map[backend.KernelChoice]int{}
	for _, v := range variants(p.Bucket) {
		c, ops := lowering{l: l, p: p, v: v}, map[backend.KernelChoice]int{}
		for _, op := range p.Ops {
			list, err := c.choices(op)
			if err != nil {
				return nil, err
			}
			for _, k := range list {
				if k.Kernel == "" {
					continue // plan-only
				}
				i, ok := at[k]
				if !ok {
					i = len(out)
					at[k], out = i, append(out, k)
				}
				ops[k]++
				out[i].Ops = max(out[i].Ops, ops[k])
			}
		}
	}
	return out, nil
}

// choices returns the choices for one op.
func (c *lowering) choices(op backend.Op) ([]backend.KernelChoice, error) {
	product := func(m matrix, p product, x backend.Value, shape string) backend.KernelChoice {
		return backend.KernelChoice{Op: backend.OpName(op), Format: m.stored.String(), Shape: shape, Rows: c.rows(c.info(x).Rows), Kernel: p.Kernel, Splits: p.splits}
	}
	switch o := op.(type) {
	case backend.Linear:
		m, err := c.l.matrix(c.p.Weights[o.W])
		if err != nil {
			return nil, err
		}
		return []backend.KernelChoice{product(m, c.product(m, c.rows(c.info(o.X).Rows), counters), o.X, fmt.Sprintf("%d×%d", m.Rows, m.Cols))}, nil
	case backend.Experts:
		m, err := c.mixture(o)
		if err != nil {
			return nil, err
		}
		shape := func(w matrix) string { return fmt.Sprintf("%d of %d×%d", w.Experts, w.Rows, w.Cols) }
		return []backend.KernelChoice{product(m.up, m.first, o.X, shape(m.up)), product(m.down, m.second, o.X, shape(m.down))}, nil
	case backend.HeadLinear:
		m, l, err := c.headProduct(o)
		if err != nil {
			return nil, err
		}
		return []backend.KernelChoice{{
			Op: backend.OpName(op), Format: m.stored.String(), Shape: fmt.Sprintf("%d of %d×%d", o.Heads, m.Rows, m.Cols), Rows: c.rows(c.info(o.Y).Rows),
			Kernel: l.Kernel, Splits: 1,
		}}, nil
	case backend.Attention:
		a, err := c.attention(o)
		if err != nil || !a.ok {
			return nil, err
		}
		shape := fmt.Sprintf("%d/%d×%d", o.Heads, o.KVHeads, o.HeadDim)
		switch {
		case o.Latent > 0:
			shape += fmt.Sprintf("+%d", o.Latent)
		case o.Chunked:
			shape += fmt.Sprintf(" chunk %d", o.Window)
		case o.Window > 0:
			shape += fmt.Sprintf(" window %d", o.Window)
		}
		choice := backend.KernelChoice{
			Op: backend.OpName(op), Format: c.info(o.K).Format.String(), Shape: shape, Rows: c.rows(c.info(o.Y).Rows), Decode: c.v.decode,
			Kernel: a.Kernel, Splits: a.splits,
		}
		if a.lists == nil {
			return []backend.KernelChoice{choice}, nil
		}
		var out []backend.KernelChoice
		for _, l := range a.lists {
			choice.Kernel, choice.Splits = l.Kernel, l.Most
			out = append(out, choice)
		}
		return out, nil
	}
	return nil, nil
}
