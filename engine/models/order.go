package models

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// order adds the order of a matrix's inputs, if the checkpoint has one (act-order). All pieces must
// have the same: they multiply the same inputs.
func (l *loader) order(spec *backend.WeightSpec, pieces []piece) {
	if !l.quant.ordered {
		return
	}
	var first []byte
	for i, p := range pieces {
		name := p.tensor + checkpoint.OrderSuffix
		t, ok := l.src.Tensor(name)
		if !ok {
			if first != nil {
				l.fail(&UnsupportedError{"act-order of a part of " + spec.Name, name + " is missing"})
			}
			return
		}
		if t.Format != kernels.F32 || len(t.Shape) != 1 || p.cols > 0 && p.cols != int(t.Elements()) || spec.Experts > 0 {
			l.fail(&UnsupportedError{fmt.Sprintf("act-order of %s at tensor parallel size %d", spec.Name, l.Shard.World), "inputs in another order are not divided between ranks or experts"})
			return
		}
		b := make([]byte, t.Bytes)
		if err := l.src.ReadRows(name, 0, 1, b); err != nil {
			l.fail(err)
			return
		}
		switch {
		case i == 0:
			if err := permutation(b, spec.Cols); err != nil {
				l.fail(&UnsupportedError{name, err.Error()})
				return
			}
			first = b
		case !slices.Equal(b, first):
			l.fail(&UnsupportedError{"act-order of " + spec.Name, pieces[0].tensor + " and " + p.tensor + " have their inputs in different orders"})
			return
		}
	}
	spec.InputOrder = 1 + int(l.vector(spec.Name+"_order", spec.Group, all(pieces[0].tensor+checkpoint.OrderSuffix)))
}

// permutation returns an error unless b has each whole number below n once.
func permutation(b []byte, n int) error {
	seen := make([]bool, n)
	for at := 0; at < len(b); at += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(b[at:]))
		if !(len(b) == 4*n && v >= 0 && v < float32(n)) || float32(int(v)) != v || seen[int(v)] {
			return fmt.Errorf("it is no order of %d inputs", n)
		}
		seen[int(v)] = true
	}
	return nil
}
