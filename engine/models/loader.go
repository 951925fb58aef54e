package models

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// loader collects a model's weights in the order in which its constructor adds them.
type loader struct {
	Build
	src         *checkpoint.Checkpoint
	quant       quant
	specs       []backend.WeightSpec
	activations kernels.Format // that the model computes in
	// modules are those that adapters may alter, if Build.LoRA has slots.
	modules []adapterModule
	layers  int   // of all pipeline stages
	err     error // the first error; New returns it
}

// piece is the part of a checkpoint tensor that this rank holds: rows and columns of a matrix or of
// every expert in a stack, or elements of a vector.
type piece struct {
	tensor     string
	row0, rows int // rows 0: all
	col0, cols int // cols 0: all; for a vector, its elements
	// transposed is true if the tensor stores the matrix, or each matrix of a stack, as [in, out].
	transposed bool
}

// all returns the whole tensor: every rank holds a copy.
func all(tensor string) piece { return piece{tensor: tensor} }

// part returns the rank's share of n things, at least one. Ranks that outnumber the things share
// one of them (key/value heads).
func (b Build) part(n int) (first, count int) {
	w := b.Shard.World
	if n < w {
		return b.Shard.Rank * n / w, 1
	}
	return b.Shard.Rank * (n / w), n / w
}

// rows returns the rank's rows of a tensor that has n groups of size rows (column parallel).
func (l *loader) rows(tensor string, n, size int) piece {
	first, count := l.part(n)
	return piece{tensor: tensor, row0: first * size, rows: count * size}
}

// cols returns the rank's columns of a tensor that has n groups of size columns (row parallel), or
// its elements of a vector.
func (l *loader) cols(tensor string, n, size int) piece {
	first, count := l.part(n)
	return piece{tensor: tensor, col0: first * size, cols: count * size}
}

// matrix describes a weight to add.
type matrix struct {
	name, group string
	use         backend.Use
	// experts is the number of matrices stacked in the tensors; 0: one matrix.
	experts int
	// linear is true if the profile's quantization may convert the weight.
	linear bool
}

// matrix adds a weight that concatenates the rows of pieces.
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
	l.order(&spec, pieces)
	return l.add(spec)
}

// int8 sets the fields that depend on the config of int8 codes.
func (l *loader) int8(spec *backend.WeightSpec) {
	if spec.Source != kernels.I8 {
		return
	}
	spec.RoundInputs = l.quant.round
	if spec.Scaling == backend.PerGroup {
		spec.GroupSize = l.quant.group
	}
}

// refuseMixed refuses a matrix of which some parts have a separate tensor of scales and others do
// not. Parts in other formats are converted to one.
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

// linear adds a matrix that the profile's quantization may convert and adapters may alter.
func (l *loader) linear(name, group string, pieces ...piece) backend.WeightID {
	id := l.matrix(matrix{name: name, group: group, linear: true}, pieces...)
	l.adapt(id, pieces)
	return id
}

// gateUp marks a matrix whose rows are gates and then ups.
func (l *loader) gateUp(id backend.WeightID) backend.WeightID {
	l.specs[id].GateUp = true
	return id
}

// plain reports whether f stores each weight as one float. Quantization at load converts only these
// formats.
func plain(f kernels.Format) bool {
	return f == kernels.F32 || f == kernels.F16 || f == kernels.BF16
}

// scalingOf returns the scaling of weights that are quantized to f at load.
func scalingOf(f kernels.Format) backend.Scaling {
	if f == kernels.F8E4M3 {
		return backend.PerChannel
	}
	return backend.NoScale
}

// fail records the first error of a build.
func (l *loader) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// finish returns the build's first error. It also refuses a quantization that no weight could take.
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

// vector adds the concatenation of vectors, stored as F32. The columns of a piece select elements.
func (l *loader) vector(name, group string, pieces ...piece) backend.WeightID {
	spec := backend.WeightSpec{Name: name, Group: group, Rows: 1, Use: backend.Vector}
	for _, p := range pieces {
		t := l.tensor(p.tensor)
		part := backend.Part{Tensor: p.tensor, Rows: 1, Elems: int(t.Elements()), Col0: p.col0, Format: t.Format}
		switch {
		case p.rows > 0:
			part.Row0, part.Rows, part.Elems = p.row0, p.rows, p.rows*int(t.RowElements())
		case p.cols > 0:
			part.Elems, part.Cols = p.cols, p.cols
		}
		spec.Source = t.Format
		spec.Cols += part.Elems
		spec.Parts = append(spec.Parts, part)
	}
	return l.add(spec)
}

// literal adds a vector of numbers that the model code computed.
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
