package cuda

import (
	"fmt"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda"
)

// itemAddresses are the addresses of an encoder's input: see backend.ItemInput.
type itemAddresses struct{ colours, across, down, at cuda.Ptr }

// vision appends the ops of towers, and Merge.
func (c *lowering) vision(op backend.Op) error {
	switch o := op.(type) {
	case backend.Patches:
		x := c.info(o.Pixels)
		a := cuda.PatchesArgs{
			Item: c.at.item.colours, ItemAcross: c.at.item.across, ItemDown: c.at.item.down, Pixels: c.value(o.Pixels), Across: c.value(o.Across), Down: c.value(o.Down),
			Scale: o.Scale, Shift: o.Shift, Cols: int32(x.Cols),
		}
		return rowwise(c, "patches", x, a)
	case backend.AvgPool:
		return c.pool(o)
	case backend.Standardize:
		x := c.info(o.X)
		return rowwise(c, "standardize", x, cuda.StandardizeArgs{X: c.value(o.X), Mean: c.weight(o.Mean), Scale: c.weight(o.Scale), Cols: int32(x.Cols)})
	case backend.Resample:
		return c.resample(o)
	case backend.Join: // rows of X follow each other: a copy
		y := c.info(o.Y)
		return c.concat(c.value(o.X), y, 0, backend.ValueInfo{}, c.value(o.Y))
	case backend.EncoderOutput:
		x := c.info(o.X)
		return rowwise(c, "store_encoded", x, cuda.StoreEncodedArgs{X: c.value(o.X), Encoded: c.at.arenas[backend.Encoded], At: c.at.item.at, Cols: int32(x.Cols)})
	case backend.Merge:
		x, rows := c.info(o.X), c.at.step.encoded
		if o.Next {
			rows = c.at.step.encodedNext
		}
		return rowwise(c, "merge", x, cuda.MergeArgs{X: c.value(o.X), Encoded: c.at.arenas[backend.Encoded], Rows: rows, Cols: int32(x.Cols)})
	}
	return backend.Unsupported(name, "op "+backend.OpName(op), "it has no kernel")
}

// rowwise appends a kernel that has a block for each row of x.
func rowwise[T any](c *lowering, kernel string, x backend.ValueInfo, a T) error {
	return add(c, kernel, line(each(x.Rows, 1, 1)), across(x.Cols, 256), 0, a)
}

func (c *lowering) pool(o backend.AvgPool) error {
	if o.Size*o.Size > cuda.PoolSquare {
		return backend.Unsupported(name, fmt.Sprintf("pooled squares of %d × %d patches", o.Size, o.Size), fmt.Sprintf("at most %d patches", cuda.PoolSquare))
	}
	y := c.info(o.Y)
	a := cuda.PoolArgs{X: c.value(o.X), Across: c.value(o.Across), Down: c.value(o.Down), Y: c.value(o.Y), Cols: int32(y.Cols), Size: int32(o.Size), Scale: o.Scale}
	return add(c, "pool", line(each(y.Rows, 1, 1)), across(y.Cols, 256), 0, a, bind(unsafe.Offsetof(a.Tokens), backend.PerToken, 1))
}

func (c *lowering) resample(o backend.Resample) error {
	w, x := c.p.Weights[o.Table], c.info(o.X)
	m, err := c.l.matrix(w)
	if err != nil {
		return err
	}
	if m.panels || !plain(m.stored) {
		return backend.Unsupported(name, "weight "+w.Name, "no kernel resamples a table of "+m.stored.String()+elsewhere)
	}
	a := cuda.ResampleArgs{X: c.value(o.X), Table: c.weight(o.Table), Across: c.value(o.Across), Down: c.value(o.Down), Cols: int32(x.Cols), Side: int32(o.Side)}
	return add(c, "resample_"+m.stored.String(), line(each(x.Rows, 1, 1)), across(x.Cols, 256), 0, a, bind(unsafe.Offsetof(a.Tokens), backend.PerToken, 1))
}
