package ref

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// compileVision compiles the ops of vision towers and those that put their rows into a prompt.
func compileVision(o backend.Op) op {
	switch o := o.(type) {
	case backend.Patches:
		return patches{o}
	case backend.AvgPool:
		return avgPool{o}
	case backend.Standardize:
		return standardize{o}
	case backend.Resample:
		return resample{o}
	case backend.Join:
		return join{o}
	case backend.EncoderOutput:
		return encoderOutput{o}
	case backend.Merge:
		return merge{o}
	}
	return nil
}

type patches struct{ backend.Patches }

func (o patches) units(l *launch) int { return l.b.Tokens }
func (o patches) run(l *launch, _, t int) error {
	in, n := l.d.encoder.in, l.cols(o.Pixels)
	y := rowOf(l.floats(o.Pixels), t, n)
	for i, x := range rowOf(in.Pixels, t, n) {
		y[i] = float32(in.Colours[x]*o.Scale) + o.Shift
	}
	l.ints(o.Across)[t], l.ints(o.Down)[t] = in.Across[t], in.Down[t]
	return nil
}

type avgPool struct{ backend.AvgPool }

func (o avgPool) units(l *launch) int { return l.b.Samples }
func (o avgPool) run(l *launch, _, r int) error {
	ref.AvgPool(l.floats(o.X), l.ints(o.Across), l.ints(o.Down), l.cols(o.X), o.Size, r, o.Scale, l.floats(o.Y))
	return nil
}

type standardize struct{ backend.Standardize }

func (o standardize) units(l *launch) int { return l.rowsOf(o.X) }
func (o standardize) run(l *launch, _, r int) error {
	ref.Standardize(rowOf(l.floats(o.X), r, l.cols(o.X)), l.vector(o.Mean), l.vector(o.Scale))
	return nil
}

type resample struct{ backend.Resample }

func (o resample) units(l *launch) int { return l.b.Tokens }
func (o resample) run(l *launch, _, t int) error {
	wide, high := size(l.ints(o.Across)), size(l.ints(o.Down))
	w := l.d.weights[o.Table]
	ref.Resample(w.Format, w.data, o.Side, int(l.ints(o.Across)[t]), int(l.ints(o.Down)[t]), wide, high, rowOf(l.floats(o.X), t, l.cols(o.X)))
	return nil
}

// size returns one more than the largest place.
func size(places []int32) (n int) {
	for _, p := range places {
		n = max(n, int(p)+1)
	}
	return n
}

type join struct{ backend.Join }

func (o join) units(l *launch) int { return l.b.Samples }
func (o join) run(l *launch, _, r int) error {
	n := l.cols(o.Y)
	copy(rowOf(l.floats(o.Y), r, n), rowOf(l.floats(o.X), r, n))
	return nil
}

type encoderOutput struct{ backend.EncoderOutput }

func (o encoderOutput) units(l *launch) int { return l.b.Samples }
func (o encoderOutput) run(l *launch, _, r int) error {
	n := l.cols(o.X)
	copy(l.d.encoded(int(l.at)+r, n), rowOf(l.floats(o.X), r, n))
	return nil
}

type merge struct{ backend.Merge }

func (o merge) units(l *launch) int { return l.b.Tokens }
func (o merge) run(l *launch, _, t int) error {
	rows := l.s.Encoded
	if o.Next {
		rows = l.s.EncodedNext
	}
	if row := rows[t]; row >= 0 {
		n := l.cols(o.X)
		copy(rowOf(l.floats(o.X), t, n), l.d.encoded(int(row), n))
	}
	return nil
}

// encoded returns a row of the Encoded arena.
func (d *device) encoded(row, cols int) []float32 {
	size := elementBytes(kernels.F32, cols)
	return floats(d.arenas[backend.Encoded][row*size:][:size])
}
