//go:build linux && cgo && cuda

package cuda

import (
	"errors"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// made returns a function that generates the weight on the device, or nil if its rows have to
// be read.
func (k *packing) made() func(p *piece) error {
	source, ok := k.src.(backend.DummySource)
	if !ok || !k.m.panels {
		return nil
	}
	made := make([][2]kernels.Dummy, len(k.m.Parts)) // for each part: its numbers and its exponents
	begin := 0
	if k.m.half > 0 && (len(k.m.Parts) > 2 || len(k.m.Parts) == 2 && k.m.Parts[0].Rows != k.m.half) {
		return nil
	}
	for i, p := range k.m.Parts {
		if p.Format != k.raw || p.Transposed || p.Fold > 1 || p.Col0 > 0 || begin%cuda.PanelRows != 0 || p.Format == kernels.MXFP4 && p.Scale == "" {
			return nil
		}
		begin += p.Rows
		if made[i][0], ok = source.Dummy(p.Tensor); !ok {
			return nil
		}
		if p.Offset {
			made[i][0].Levels = append([]byte(nil), made[i][0].Levels...)
			p.Centre(made[i][0].Levels)
		}
		if p.Format != kernels.MXFP4 {
			continue
		}
		if made[i][1], ok = source.Dummy(p.Scale); !ok {
			return nil
		}
	}
	return func(piece *piece) error {
		for e := range max(1, k.m.Experts) {
			row := 0
			for i, p := range k.m.Parts {
				s, from := span{e, row, p.Rows}, []int{i}
				if k.m.half > 0 { // one launch for both halves
					s.rows, from = k.m.Rows, []int{0, len(k.m.Parts) - 1}
				}
				a := k.args(piece, s)
				for h, i := range from {
					p := k.m.Parts[i]
					a.Row0[h] = int64(p.Row0 + e*p.Stride)
					if h > 0 && i == 0 { // both are in one tensor
						a.Row0[h] += int64(k.m.half)
					}
					if err := errors.Join(k.levels(piece, made[i][0], &a.Made[h]), k.levels(piece, made[i][1], &a.Exponents[h])); err != nil {
						return err
					}
				}
				if err := k.pack(piece, s, a); err != nil {
					return err
				}
				if row += s.rows; row == k.m.Rows {
					break
				}
			}
		}
		return nil
	}
}

// levels sets the kernel arguments of a dummy tensor.
func (k *packing) levels(p *piece, m kernels.Dummy, to *cuda.MadeArgs) (err error) {
	if m.Levels == nil {
		return nil
	}
	to.Key, to.Size = m.Key, int32(m.Size)
	to.Levels, err = k.d.table(p, m.Levels)
	return err
}
