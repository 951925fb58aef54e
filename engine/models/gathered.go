package models

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// projection is that of Q, K or V alone, in a layer whose norms of Q and K run over the heads of all
// ranks.
type projection struct {
	name         string
	weight, bias backend.WeightID
	norm         backend.WeightID // of the columns of all ranks; NoWeight: none
	cols         int              // of this rank
}

// gathers reports whether norms of Q and K need the heads of other ranks.
func (d recipe) gathers(b Build) bool { return d.heads.Whole && b.Shard.World > 1 }

// loadGathered adds the rank's projections of Q, K and V, and the whole norms.
func (d recipe) loadGathered(l *loader, attn, n string) []projection {
	weights, biases := d.qkv(l, attn, ".weight", l.rows), d.qkv(l, attn, ".bias", l.cols)
	norms := [][]piece{l.ofAllRanks(attn+d.qNorm+".weight", d.cfg.NumHeads, d.cfg.HeadDim), l.ofAllRanks(attn+d.kNorm+".weight", d.cfg.NumKVHeads, d.cfg.HeadDim), nil}
	var out []projection
	for i, name := range []string{"q", "k", "v"} {
		p := projection{name: name, bias: backend.NoWeight, norm: backend.NoWeight, cols: weights[i].rows}
		p.weight = l.linear(n+name, "attention", weights[i])
		if d.qkvBias {
			p.bias = l.vector(n+name+"_bias", "attention", biases[i])
		}
		if norms[i] != nil {
			p.norm = l.vector(n+name+"_norm", "norm", norms[i]...)
		}
		out = append(out, p)
	}
	return out
}

// ofAllRanks returns the parts of all ranks of a vector with n groups of size elements. Ranks that share
// a group have the same part.
func (l *loader) ofAllRanks(tensor string, n, size int) []piece {
	if n >= l.Shard.World {
		return []piece{all(tensor)}
	}
	var out []piece
	for rank := range l.Shard.World {
		b := l.Build
		b.Shard.Rank = rank
		first, count := b.part(n)
		out = append(out, piece{tensor: tensor, col0: first * size, cols: count * size})
	}
	return out
}

// ownColumns adds the numbers of the rank's columns among those of all ranks, n each.
func (l *loader) ownColumns(name string, n int) backend.WeightID {
	columns := make([]float32, n)
	for i := range columns {
		columns[i] = float32(l.Shard.Rank*n + i)
	}
	return l.literal(name, "attention", columns)
}

// projectGathered returns the rank's Q, K and V of x as one value. Q and K are normalized as whole rows:
// every rank gathers those of all ranks and selects its own heads, as in vLLM.
func (s *decoderPass) projectGathered(x backend.Value, list []projection) backend.Value {
	r, rows, qkv := s.r, s.r.Info(x).Rows, backend.NoValue
	for i, p := range list {
		y := r.New(p.name, kernels.F32, rows, p.cols)
		r.Do(backend.Linear{X: x, W: p.weight, Bias: p.bias, Y: y})
		if p.norm != backend.NoWeight {
			whole := r.New(p.name+".all", kernels.F32, rows, p.cols*s.Shard.World)
			r.Do(backend.AllGather{X: y, Y: whole})
			r.Do(backend.Norm{X: whole, Residual: backend.NoValue, W: p.norm, Eps: float32(s.cfg.RMSNormEps), Offset: s.normOffset, Y: whole})
			r.Do(backend.Reorder{X: whole, Y: y, Order: s.own[i]})
			r.Free(whole)
		}
		if i > 0 {
			joined := r.New("qkv", kernels.F32, rows, r.Info(qkv).Cols+p.cols)
			r.Do(backend.Concat{A: qkv, B: y, Y: joined})
			r.Free(qkv, y)
			y = joined
		}
		qkv = y
	}
	return qkv
}
