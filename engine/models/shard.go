package models

import (
	"fmt"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// maxRanks bounds parallel sizes.
const maxRanks = 1024

// withDefaults sets shards that are zero to Whole, and refuses invalid ranks and sizes.
func (b Build) withDefaults() (Build, error) {
	for i, s := range []*backend.Shard{&b.Shard, &b.Pipe} {
		if s.World == 0 {
			*s = backend.Whole
		}
		if s.World < 1 || s.World > maxRanks || s.Rank < 0 || s.Rank >= s.World {
			return b, &UnsupportedError{fmt.Sprintf("rank %d of %s parallel size %d", s.Rank, []string{"tensor", "pipeline"}[i], s.World),
				fmt.Sprintf("sizes are 1 to %d, and ranks below them", maxRanks)}
		}
	}
	return b, nil
}

// checkEven refuses n things that the tensor parallel ranks cannot share evenly; things reads like
// "attention heads". The error names the sizes that divide them.
func (b Build) checkEven(n int, things string) error {
	if w := b.Shard.World; n%w != 0 {
		return &UnsupportedError{fmt.Sprintf("tensor parallel size %d", w), fmt.Sprintf("it does not divide %d %s; %s", n, things, dividing(n, nil))}
	}
	return nil
}

// checkShared is checkEven for things that several ranks may share: key/value heads. Sizes that are
// multiples of n are possible too.
func (b Build) checkShared(n int, things string) error {
	w := b.Shard.World
	if n%w == 0 || n > 0 && w > n && w%n == 0 {
		return nil
	}
	return &UnsupportedError{fmt.Sprintf("tensor parallel size %d", w), fmt.Sprintf("it does not divide %d %s; %s", n, things, dividing(n, []string{fmt.Sprintf("multiples of %d", n)}))}
}

// dividing names the sizes above 1 that divide n: "3, 9 do". more are appended.
func dividing(n int, more []string) string {
	var out []string
	for w := 2; w <= min(n, maxRanks); w++ {
		if n%w == 0 {
			out = append(out, fmt.Sprint(w))
		}
	}
	const most = 12
	if len(out) > most {
		out = append(out[:most], "…")
	}
	if out = append(out, more...); len(out) == 0 {
		return "no size above 1 does"
	}
	return strings.Join(out, ", ") + " do"
}

// Layers returns the layers of the build's stage, of a model with n layers: the first one and how
// many.
func (b Build) Layers(n int) (first, count int, err error) {
	b, err = b.withDefaults()
	if err != nil {
		return 0, 0, err
	}
	s, err := b.stage(n)
	return s.layer0, s.layers, err
}

// stage is the range of layers that a pipeline rank holds. The first stage also has the embedding,
// the last one the final norm and the head.
type stage struct {
	first, last bool
	layer0      int
	layers      int
}

// stage divides n layers as vLLM does: evenly, with one extra layer each, as needed, for the ranks
// just before the last.
func (b Build) stage(n int) (stage, error) {
	r, w := b.Pipe.Rank, b.Pipe.World
	if n < w {
		return stage{}, &UnsupportedError{fmt.Sprintf("pipeline parallel size %d", w), fmt.Sprintf("the model has %d layers, less than one for each rank", n)}
	}
	s := stage{first: r == 0, last: r == w-1, layers: n / w, layer0: r * (n / w)}
	rest := n % w
	more := w - 1 - rest // the first rank with an extra layer
	if r >= more && r < w-1 {
		s.layers++
	}
	s.layer0 += min(max(0, r-more), rest)
	return s, nil
}

// embedding adds the rank's rows of the table of n token embeddings. tied is true if the head
// multiplies by the same table.
func (l *loader) embedding(tensor string, n int, tied bool) backend.WeightID {
	use := backend.Lookup
	if tied {
		use |= backend.Multiply
	}
	return l.matrix(matrix{name: "embed", group: "embedding", use: use}, l.rows(tensor, n, 1))
}

// head adds the rank's rows of the matrix that computes n logits.
func (l *loader) head(tensor string, n int) backend.WeightID {
	return l.matrix(matrix{name: "head", group: "head"}, l.rows(tensor, n, 1))
}

// outBias adds the bias of a row-parallel matrix on rank 0 only, because the ranks' results are
// summed.
func (l *loader) outBias(name, group, tensor string) backend.WeightID {
	if l.Shard.Rank != 0 {
		return backend.NoWeight
	}
	return l.vector(name, group, all(tensor))
}

// vocabulary is the start and the end of a program: the embedding and the head.
type vocabulary struct {
	Build
	embed, head backend.WeightID
	classes     int // rows of head if the model classifies
	size        int // of the whole vocabulary
	hidden      int
	scale       float32 // of embeddings
	propose     proposer
}

// proposer records the ops that propose tokens. ids [T,1] are the step's tokens; kept [S,1] is the
// row of each sequence's last accepted token. nil: the host proposes, or there are no proposals.
type proposer func(r *backend.Recorder, ids, kept backend.Value)

// lookup returns a new value [rows,hidden] with the embeddings of ids [rows,1].
func (v vocabulary) lookup(r *backend.Recorder, ids backend.Value, name string) backend.Value {
	first, _ := v.part(v.size)
	x := r.New(name, kernels.F32, r.Info(ids).Rows, v.hidden)
	r.Do(backend.Embed{Ids: ids, Table: v.embed, Y: x, Scale: v.scale, Row0: first})
	r.Do(backend.AllReduce{X: x})
	return x
}

// logits returns a new value [rows,size] with the logits of x [rows,hidden].
func (v vocabulary) logits(r *backend.Recorder, x backend.Value) backend.Value {
	rows := r.Info(x).Rows
	_, n := v.part(v.size)
	part := r.New("logits", kernels.F32, rows, n)
	r.Do(backend.Linear{X: x, W: v.head, Bias: backend.NoWeight, Y: part})
	if v.Shard.World == 1 {
		return part
	}
	whole := r.New("logits.all", kernels.F32, rows, v.size)
	r.Do(backend.AllGather{X: part, Y: whole})
	r.Free(part)
	return whole
}
