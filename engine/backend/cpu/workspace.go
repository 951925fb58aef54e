package cpu

import (
	"fmt"

	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// rooms is what an op needs in the workspace: one room that all threads share,
// then one for each. Ops run one after the other, so all begin at its start.
type rooms struct{ shared, each int64 }

// Workspace is the largest rooms of an op. It refuses ops, fields and shapes
// that no kernel has.
func (l layout) Workspace(p *backend.Program) (int64, error) {
	if p.Shard.World > 1 {
		return 0, backend.Unsupported(name, fmt.Sprintf("%d ranks", p.Shard.World), "it is a single device")
	}
	var most int64
	for _, op := range p.Ops {
		r, err := l.rooms(p, op)
		if err != nil {
			return 0, err
		}
		most = max(most, r.shared+int64(l.threads)*r.each)
	}
	return most, nil
}

// rooms of one op, at the bucket's row counts.
func (l layout) rooms(p *backend.Program, op backend.Op) (rooms, error) {
	switch o := op.(type) {
	case backend.Linear:
		return l.linearRooms(p, o)
	case backend.Attention:
		switch {
		case o.HeadDim > kcpu.MaxHeadDim:
			return rooms{}, backend.Unsupported(name, fmt.Sprintf("attention heads of %d", o.HeadDim), fmt.Sprintf("at most %d", kcpu.MaxHeadDim))
		case o.KVHeads > 0 && o.Heads/o.KVHeads > kcpu.MaxGroup:
			return rooms{}, backend.Unsupported(name, fmt.Sprintf("%d query heads for a key/value head", o.Heads/o.KVHeads), fmt.Sprintf("at most %d", kcpu.MaxGroup))
		}
		return rooms{kcpu.AttentionShared(l.threads), kcpu.AttentionWorkspace(o.HeadDim)}, nil
	case backend.Sample:
		if p.Vocab > kcpu.MaxVocab {
			return rooms{}, backend.Unsupported(name, fmt.Sprintf("a vocabulary of %d", p.Vocab), fmt.Sprintf("at most %d", kcpu.MaxVocab))
		}
		return rooms{each: kcpu.SampleWorkspace(p.Vocab)}, nil
	case backend.Tokens, backend.StoreTokens, backend.Embed, backend.Norm, backend.Angles, backend.Rope,
		backend.StoreKV, backend.SwiGLU, backend.Gather:
		return rooms{}, nil
	}
	return rooms{}, backend.Unsupported(name, "op "+backend.OpName(op), "it has no kernel")
}

func (l layout) linearRooms(p *backend.Program, o backend.Linear) (rooms, error) {
	if int(o.W) >= len(p.Weights) || o.W < 0 || int(o.X) >= len(p.Values) || o.X < 0 {
		return rooms{}, fmt.Errorf("backend %s: program %s: linear of weight %d and value %d, which it lacks", name, p.Name, o.W, o.X)
	}
	w := p.Weights[o.W]
	packed, err := l.Weight(w)
	if err != nil {
		return rooms{}, err
	}
	shared, each := kcpu.LinearWorkspace(l.variant, packed.Format, p.Rows(p.Values[o.X].Rows), w.Cols, w.Rows, l.threads)
	return rooms{align(shared), align(each)}, nil
}
