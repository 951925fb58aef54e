package models

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// loader collects the weights of a model as its constructor names them.
type loader struct {
	Build
	src   *checkpoint.Checkpoint
	quant quant
	specs []backend.WeightSpec
	err   error // the first thing that cannot be built; New returns it
}

// piece is the part of a checkpoint tensor that this rank holds: rows and
// columns of a matrix, of every expert of a stack, or elements of a vector.
type piece struct {
	tensor     string
	row0, rows int // rows 0: all
	col0, cols int // cols 0: all; of a vector its elements
	// transposed says that the tensor keeps the matrix, or each of a stack, as [in, out].
	transposed bool
}

// all is a tensor that every rank holds whole.
func all(tensor string) piece { return piece{tensor: tensor} }

// part is the rank's part of n things, never less than one: ranks that outnumber
// them share one (key/value heads).
func (b Build) part(n int) (first, count int) {
	w := b.Shard.World
	if n < w {
		return b.Shard.Rank * n / w, 1
	}
	return b.Shard.Rank * (n / w), n / w
}

// rows is the rank's part of a tensor of n groups of size rows (column parallel).
func (l *loader) rows(tensor string, n, size int) piece {
	first, count := l.part(n)
	return piece{tensor: tensor, row0: first * size, rows: count * size}
}

// cols is the rank's part of a tensor of n groups of size columns (row parallel),
// or of a vector's elements.
func (l *loader) cols(tensor string, n, size int) piece {
	first, count := l.part(n)
	return piece{tensor: tensor, col0: first * size, cols: count * size}
}

// matrix is what a constructor says of a weight.
type matrix struct {
	name, group string
	use         backend.Use
	// experts is how many matrices the tensors stack; 0: one matrix.
	experts int
	// linear says that the profile's quantization may convert it.
	linear bool
}

// matrix adds the rows of pieces one after the other.
func (l *loader) matrix(m matrix, pieces ...piece) backend.WeightID {
	spec := backend.WeightSpec{Name: m.name, Group: m.group, Use: m.use, Experts: m.experts}
	if spec.Use == 0 {
		spec.Use = backend.Multiply
	}
	convertible := true
	for i, p := range pieces {
		part, cols, scaling := l.matrixPart(p, m.experts)
		spec.Rows += part.Rows
		spec.Cols = cols
		spec.Parts = append(spec.Parts, part)
		convertible = convertible && plain(part.Format)
		if i == 0 {
			spec.Source, spec.Scaling = part.Format, scaling
			l.int8(&spec)
		} else if part.Format != spec.Source || scaling != spec.Scaling {
			spec.Source, spec.Scaling = kernels.Invalid, backend.NoScale
			l.refuseMixed(m.name, spec.Parts)
		}
	}
	switch {
	case !convertible:
	case m.linear && l.Quantize != kernels.Invalid:
		spec.Target, spec.Scaling = l.Quantize, scalingOf(l.Quantize)
	case l.Dtype != kernels.Invalid && l.Dtype != spec.Source:
		spec.Target = l.Dtype
	}
	return l.add(spec)
}

// int8 adds what the config says of int8 codes.
func (l *loader) int8(spec *backend.WeightSpec) {
	if spec.Source != kernels.I8 {
		return
	}
	spec.RoundInputs = l.quant.round
	if spec.Scaling == backend.PerGroup {
		spec.GroupSize = l.quant.group
	}
}

// mixed refuses parts of one matrix of which only some have scales of their own
// in other tensors; other formats are converted to one.
func (l *loader) refuseMixed(name string, parts []backend.Part) {
	for _, p := range parts {
		if p.Scale != "" {
			first, last := parts[0], parts[len(parts)-1]
			l.fail(&UnsupportedError{"a checkpoint where parts of one matrix are quantized and others are not",
				fmt.Sprintf("%s is made of %s in %v and %s in %v", name, first.Tensor, first.Format, last.Tensor, last.Format)})
			return
		}
	}
}

// linear is a matrix that the profile's quantization may convert.
func (l *loader) linear(name, group string, pieces ...piece) backend.WeightID {
	return l.matrix(matrix{name: name, group: group, linear: true}, pieces...)
}

// plain says that weights are stored one by one: quantization at load converts
// these, and leaves what is quantized as it is.
func plain(f kernels.Format) bool {
	return f == kernels.F32 || f == kernels.F16 || f == kernels.BF16
}

// scalingOf is how weights that are quantized at load are scaled.
func scalingOf(f kernels.Format) backend.Scaling {
	if f == kernels.F8E4M3 {
		return backend.PerChannel
	}
	return backend.NoScale
}

// fail keeps the first error of a build.
func (l *loader) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// finish is what was wrong with the build, if anything.
func (l *loader) finish() error {
	if l.err != nil || l.Quantize == kernels.Invalid {
		return l.err
	}
	stored := kernels.Invalid
	for _, w := range l.specs {
		if w.Target == l.Quantize {
			return nil
		}
		if w.Use == backend.Multiply {
			stored = w.Source
		}
	}
	return &UnsupportedError{"quantization to " + l.Quantize.String(), "no linear layer is stored as f32, f16 or bf16; they are " + stored.String()}
}

// vector adds vectors end to end, kept as F32. Of a piece, columns are elements.
func (l *loader) vector(name, group string, pieces ...piece) backend.WeightID {
	spec := backend.WeightSpec{Name: name, Group: group, Rows: 1, Use: backend.Vector}
	for _, p := range pieces {
		t := l.tensor(p.tensor)
		e := int(t.Elements())
		if p.cols > 0 {
			e = p.cols
		}
		spec.Source = t.Format
		spec.Cols += e
		spec.Parts = append(spec.Parts, backend.Part{Tensor: p.tensor, Rows: 1, Elems: e, Col0: p.col0, Format: t.Format})
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
