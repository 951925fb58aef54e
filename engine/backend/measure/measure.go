// Package measure measures the peak rates of a device. It runs two programs: one streams
// memory, one multiplies matrices. So the rates are those of the backend's own kernels, and a
// Device needs no extra method.
//
// It must not know a particular backend or a model. Start reading at Device.
package measure

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/kernels"
)

// Size is the amount of work of the programs.
type Size struct {
	Rows  int // of both programs
	Cols  int // of the square matrix
	Wide  int // numbers in a streamed row, 12 bytes of memory traffic each
	Times int // launches in a round; the best of Rounds counts
}

// Rounds is how many rounds of launches are timed.
const Rounds = 3

// GPU is a size that saturates any GPU: 3 GiB streamed, 1.1·10¹² multiply operations.
var GPU = Size{Rows: 8192, Cols: 8192, Wide: 16384, Times: 10}

// Rates are bytes and operations per second.
type Rates struct{ Bytes, BF16 float64 }

// Device opens the device of f twice and measures it. It keeps no memory between the runs.
func Device(o backend.Opener, f backend.Facts, n Size) (Rates, error) {
	var r Rates
	s, err := run(o, f, n, stream(n))
	if err != nil {
		return r, fmt.Errorf("measuring memory: %w", err)
	}
	r.Bytes = 12 * float64(n.Rows) * float64(n.Wide) / s
	if s, err = run(o, f, n, product(n)); err != nil {
		return r, fmt.Errorf("measuring products: %w", err)
	}
	r.BF16 = 2 * float64(n.Rows) * float64(n.Cols) * float64(n.Cols) / s
	return r, nil
}

// stream returns a program that adds one value to another: it reads two and writes one.
func stream(n Size) *backend.Program {
	p := &backend.Program{Name: "stream", Bucket: backend.Bucket{Tokens: n.Rows, Seqs: 1, Samples: 1}, Vocab: 1}
	r := backend.Record(p)
	x, into := r.New("x", kernels.F32, backend.PerToken, n.Wide), r.New("into", kernels.F32, backend.PerToken, n.Wide)
	r.Do(backend.Add{X: x, Into: into, Scale: backend.NoWeight})
	r.Free(x, into)
	return p
}

// product returns a program that multiplies rows by a matrix of random numbers. Zeros would
// draw less power and could be faster.
func product(n Size) *backend.Program {
	p := &backend.Program{Name: "product", Bucket: backend.Bucket{Tokens: n.Rows, Seqs: 1, Samples: 1}, Vocab: n.Rows}
	p.Weights = []backend.WeightSpec{
		{Name: "x", Rows: n.Rows, Cols: n.Cols, Source: kernels.BF16, Use: backend.Lookup, Parts: []backend.Part{{Tensor: "x", Format: kernels.BF16, Rows: n.Rows}}},
		{Name: "w", Rows: n.Cols, Cols: n.Cols, Source: kernels.BF16, Use: backend.Multiply, Parts: []backend.Part{{Tensor: "w", Format: kernels.BF16, Rows: n.Cols}}},
	}
	r := backend.Record(p)
	ids, x, y := r.New("ids", kernels.I32, backend.PerToken, 1), r.New("x", kernels.F32, backend.PerToken, n.Cols), r.New("y", kernels.F32, backend.PerToken, n.Cols)
	r.Do(backend.Tokens{Out: ids})
	r.Do(backend.Embed{Ids: ids, Table: 0, Y: x, Scale: 1})
	r.Do(backend.Linear{X: x, W: 1, Bias: backend.NoWeight, Y: y})
	r.Free(ids, x, y)
	return p
}

// run returns the seconds of one launch of p.
func run(o backend.Opener, f backend.Facts, n Size, p *backend.Program) (seconds float64, err error) {
	l, err := o.Layout(f, backend.Settings{})
	if err != nil {
		return 0, err
	}
	step := backend.StepShape{Tokens: n.Rows, Seqs: 1, Samples: 1, Vocab: p.Vocab}
	res, err := dry.Run(l, p.Weights, []*backend.Program{p}, step, 0)
	if err != nil {
		return 0, err
	}
	dev, err := o.Open(f, backend.Settings{}, res)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	for i := range p.Weights {
		if err := dev.Pack(i, noise{}); err != nil {
			return 0, err
		}
	}
	e, err := dev.Compile(p)
	if err != nil {
		return 0, err
	}
	var rounds []float64
	for range 1 + Rounds { // the first round is a warm-up
		start := time.Now()
		for i := range n.Times {
			if err := launch(dev, e, i%2, n.Rows); err != nil {
				return 0, err
			}
		}
		if err := errors.Join(dev.Wait(0), dev.Wait(1)); err != nil {
			return 0, err
		}
		rounds = append(rounds, time.Since(start).Seconds()/float64(n.Times))
	}
	return slices.Min(rounds[1:]), nil
}

// launch fills a set with one sequence of rows tokens and starts it.
func launch(dev backend.Device, e backend.Executable, set, rows int) error {
	if err := dev.Wait(set); err != nil {
		return err
	}
	s := dev.Step(set)
	for t := range rows {
		s.Tokens[t], s.Positions[t], s.Seq[t] = int32(t%max(1, e.Program().Vocab)), int32(t), 0
	}
	s.First[0], s.First[1] = 0, int32(rows)
	return dev.Launch(e, backend.Binding{Set: set, Tokens: rows, Seqs: 1})
}

// noise is a checkpoint of bf16 numbers between −1 and 1.
type noise struct{}

// ReadRows fills dst with the same numbers for the same rows.
func (noise) ReadRows(name string, row0, rows int, dst []byte) error {
	r := rand.New(rand.NewPCG(uint64(len(name)), uint64(row0)))
	for i := 0; i+4 <= len(dst); i += 4 {
		// Two numbers: a sign, an exponent of 2⁻¹ to 2⁻⁴, a fraction. No byte is a NaN as an 8-bit
		// float or as an exponent of MXFP4.
		x := r.Uint32()&0x81be81be | 0x3d803d80
		dst[i], dst[i+1], dst[i+2], dst[i+3] = byte(x), byte(x>>8), byte(x>>16), byte(x>>24)
	}
	return nil
}
