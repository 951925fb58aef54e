package models

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// loader collects the weights of a model as its constructor names them.
type loader struct {
	Build
	src   *checkpoint.Checkpoint
	specs []backend.WeightSpec
}

// matrix adds the rows of tensors one after the other. split says that ranks
// share the rows (column parallel); each tensor is split by itself, so that
// q, k and v stay whole heads.
func (l *loader) matrix(name, group string, use backend.Use, split bool, tensors ...string) backend.WeightID {
	spec := backend.WeightSpec{Name: name, Group: group, Use: use}
	for i, n := range tensors {
		t, _ := l.src.Tensor(n)
		rows, row0 := int(t.Rows()), 0
		if split {
			rows /= l.Shard.World
			row0 = rows * l.Shard.Rank
		}
		spec.Cols = int(t.RowElements())
		spec.Rows += rows
		spec.Parts = append(spec.Parts, backend.Part{Tensor: n, Row0: row0, Rows: rows, Format: t.Format})
		if i > 0 && t.Format != spec.Parts[0].Format {
			spec.Source = kernels.Invalid
		} else if i == 0 {
			spec.Source = t.Format
		}
	}
	return l.add(spec)
}

// columns adds a matrix whose input features the ranks share (row parallel).
func (l *loader) columns(name, group, tensor string) backend.WeightID {
	id := l.matrix(name, group, backend.Multiply, false, tensor)
	l.specs[id].Cols /= l.Shard.World
	return id
}

// vector adds vectors end to end, kept as F32.
func (l *loader) vector(name, group string, tensors ...string) backend.WeightID {
	spec := backend.WeightSpec{Name: name, Group: group, Rows: 1, Use: backend.Vector}
	for _, n := range tensors {
		t, _ := l.src.Tensor(n)
		e := int(t.Elements())
		spec.Source = t.Format
		spec.Cols += e
		spec.Parts = append(spec.Parts, backend.Part{Tensor: n, Rows: 1, Elems: e, Format: t.Format})
	}
	return l.add(spec)
}

// literal adds a vector of numbers the model code computed.
func (l *loader) literal(name, group string, v []float32) backend.WeightID {
	return l.add(backend.WeightSpec{
		Name: name, Group: group, Rows: 1, Cols: len(v), Source: kernels.F32, Use: backend.Vector,
		Parts: []backend.Part{{Rows: 1, Elems: len(v), Format: kernels.F32, Values: v}},
	})
}

func (l *loader) add(s backend.WeightSpec) backend.WeightID {
	l.specs = append(l.specs, s)
	return backend.WeightID(len(l.specs) - 1)
}
