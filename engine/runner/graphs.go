package runner

import (
	"context"
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/sched"
)

// Capture captures the graphs that g names, for all sets of step buffers. It reports progress
// after each; onProgress may be nil. From then on steps run by the graphs. Without sizes it does
// nothing. It fails if the device cannot capture graphs.
func (r *Runner) Capture(ctx context.Context, g backend.Graphs, onProgress func(done, of int)) error {
	all := g.Captures(r.exe.Program().Bucket)
	if len(all) == 0 {
		return nil
	}
	dev, ok := r.dev.(backend.Capturer)
	if !ok {
		return fmt.Errorf("capturing graphs: %w: the device has none", backend.ErrUnsupported)
	}
	for i, c := range all {
		for set := range r.shape.NumSets() {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("capturing graphs: %w", context.Cause(ctx))
			}
			if err := dev.Capture(r.exe, set, c); err != nil {
				return fmt.Errorf("capturing %v: %w", c, err)
			}
		}
		if onProgress != nil {
			onProgress(i+1, len(all))
		}
	}
	r.graphs = g
	return nil
}

// Captured returns the number of captured sizes.
func (r *Runner) Captured() int { return len(r.graphs.Sizes) }

// replay returns the graph that a step runs by.
func (r *Runner) replay(s *sched.Step) Replay {
	g, why := r.graphs.Choose(s.Tokens, r.decoding(s), r.exe.Program().Bucket)
	return Replay{g, why}
}

// decoding reports whether every sequence of the step has the same number of tokens as a decode
// graph, its next token and proposals, and all of them are sampled.
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

// pad fills the rows of the graph after those of the step.
func (r *Runner) pad(s *backend.Step, b backend.Binding) {
	s.Pad(b)
	for c, w := range r.shape.MaxPages {
		for i := b.Seqs * w; i < b.Graph.Seqs*w; i++ {
			s.Pages[c][i] = -1
		}
	}
}
