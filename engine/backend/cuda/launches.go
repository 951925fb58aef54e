package cuda

import (
	"encoding/binary"
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cost"
)

// Launches returns a function that lists the launches of p's steps, by their tokens, sequences and sampled rows: the
// lists that a device would run, with operands at addresses of no device. It fails as Runs does, and the function for a
// step that p's bucket does not hold (engine/speed: LaunchLister).
func (l layout) Launches(p *backend.Program) (func(tokens, seqs, samples int) ([]cost.Launch, error), error) {
	if err := l.Runs(p.Weights, p); err != nil {
		return nil, err
	}
	at := noAddresses(p)
	for i := range at.arenas { // only operands that are left out are at 0
		at.arenas[i] = cuda.Ptr(i+1) << 44
	}
	list := variants(p.Bucket)
	lowered := map[variant][]launch{}
	return func(tokens, seqs, samples int) ([]cost.Launch, error) {
		i := slices.IndexFunc(list, func(v variant) bool { return v.holds(backend.Binding{Tokens: tokens, Seqs: seqs, Samples: samples}) })
		if b := p.Bucket; i < 0 || tokens < 1 || tokens > b.Tokens || seqs > b.Seqs || samples > b.Samples {
			return nil, fmt.Errorf("backend %s: program %s has no step of %d tokens, %d sequences and %d samples", name, p.Name, tokens, seqs, samples)
		}
		v := list[i]
		if lowered[v] == nil {
			out, err := l.lower(p, v, at)
			if err != nil {
				return nil, err
			}
			lowered[v] = out
		}
		rows := backend.Bucket{Tokens: tokens, Seqs: seqs, Samples: samples}
		var out []cost.Launch
		for _, n := range lowered[v] {
			if n = n.bound(rows); n.blocks[0]*n.blocks[1]*n.blocks[2] > 0 {
				out = append(out, cost.Launch{Op: n.op, Kernel: n.kernel, Blocks: n.blocks, Threads: n.threads[0], Args: n.args, Pieces: n.pieces})
			}
		}
		return out, nil
	}, nil
}

// bound returns the launch with its symbols for the rows of a step.
func (n launch) bound(rows backend.Bucket) launch {
	n.args, n.blocks = slices.Clone(n.args), n.grid(rows)
	for _, s := range n.symbols {
		if s.at != inGrid {
			binary.NativeEndian.PutUint32(n.args[s.at:], uint32(s.value(rows)))
		}
	}
	return n
}

// grid returns the launch's blocks for the rows of a step.
func (n launch) grid(rows backend.Bucket) [3]int {
	for _, s := range n.symbols {
		if s.at == inGrid {
			n.blocks[s.dim] = s.value(rows)
		}
	}
	return n.blocks
}

func (s symbol) value(rows backend.Bucket) int {
	return (rows.Rows(backend.Rows(s.of))*int(s.times)+int(s.over)-1)/int(s.over) + int(s.add)
}
