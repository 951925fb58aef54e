package runner

import (
	"context"
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/sched"
)

// Capture has the device capture the steps that g names, on both sets of step buffers, and
// says after each how many of how many are there; told may be nil. From then on steps run by
// them. Without sizes it does nothing; a device that captures none refuses them.
func (r *Runner) Capture(ctx context.Context, g backend.Graphs, told func(done, of int)) error {
	all := g.Captures(r.exe.Program().Bucket)
	if len(all) == 0 {
		return nil
	}
	dev, ok := r.dev.(backend.Capturer)
	if !ok {
		return fmt.Errorf("capturing graphs: %w: the device has none", backend.ErrUnsupported)
	}
	for i, c := range all {
		for set := range 2 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("capturing graphs: %w", context.Cause(ctx))
			}
			if err := dev.Capture(r.exe, set, c); err != nil {
				return fmt.Errorf("capturing %v: %w", c, err)
			}
		}
		if told != nil {
			told(i+1, len(all))
		}
	}
	r.graphs = g
	return nil
}

// Captured is how many steps graphs hold.
func (r *Runner) Captured() int { return len(r.graphs.Sizes) }

// replay chooses the graph of a step.
func (r *Runner) replay(s *sched.Step) Replay {
	g, why := r.graphs.Choose(s.Tokens, r.decoding(s), r.exe.Program().Bucket)
	return Replay{g, why}
}

// decoding says that every sequence has its next token and as many proposals as steps have,
// and all of these are sampled.
func (r *Runner) decoding(s *sched.Step) bool {
	if s.Samples != s.Tokens || r.shape.OutputCols > 0 {
		return false
	}
	for i := range s.Rows {
		if s.Rows[i].Count != max(1, r.graphs.Query) {
			return false
		}
	}
	return true
}

// pad fills what is behind the step in a graph's rows.
func (r *Runner) pad(s *backend.Step, b backend.Binding) {
	s.Pad(b)
	for c, w := range r.shape.MaxPages {
		for i := b.Seqs * w; i < b.Graph.Seqs*w; i++ {
			s.Pages[c][i] = -1
		}
	}
}
