package speed

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda/cost"
)

// processor is a row of the table: what one core of a kind of processor does.
type processor struct {
	variant string // the best instruction set
	name    string
	from    string // where the figures come from
	read    float64
	most    float64 // bytes a second of a socket's memory
	f32     float64 // operations a second
	bf16    float64
	int8    float64
	// pair is the share of the bf16 rate that attention of prompts reaches; 0: as the reference.
	pair float64
}

// table has a row for each variant of x86-64, and one for all others; docs/speed.md has the sources.
var table = []processor{
	{variant: "amx", name: "Xeon with AMX (Sapphire Rapids class)", from: "figures of two cores", read: 16.5e9, most: 307.2e9, f32: 0.22e12, bf16: 3.5e12, int8: 0.6e12, pair: 0.09},
	{variant: "avx512bf16", name: "EPYC with AVX-512 BF16 (Zen 4 and 5)", from: "measured with two cores", read: 20e9, most: 307.2e9, f32: 0.115e12, bf16: 0.235e12, int8: 0.45e12},
	{variant: "avx512", name: "x86-64 with AVX-512", from: "assumed, conservative", read: 12e9, most: 204.8e9, f32: 0.1e12, bf16: 0.1e12, int8: 0.2e12},
	{variant: "avx2", name: "x86-64 with AVX2", from: "assumed, conservative", read: 12e9, most: 51.2e9, f32: 0.05e12, bf16: 0.05e12},
	{variant: "generic", name: "any other processor", from: "assumed, conservative", read: 8e9, most: 51.2e9, f32: 0.01e12, bf16: 0.01e12},
}

//go:embed reference.json
var files embed.FS

// reference returns the rates that were measured on a machine of the row "avx512bf16", with two threads. They
// give the shape of the other rows' curves.
func reference() (*Rates, error) {
	text, err := files.ReadFile("reference.json")
	if err != nil {
		return nil, err
	}
	r := &Rates{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("speed: reference.json: %w", err)
	}
	return r, r.Check()
}

// NoRowError reports a machine for which the table has no rates.
type NoRowError struct{ Device, Why string }

func (e *NoRowError) Error() string {
	return fmt.Sprintf("speed: there are no rates of %s: %s", e.Device, e.Why)
}

// Estimate returns the rates of a machine that was not measured, with a number of threads, and the row of the
// table of processors that they come from: the last one for a variant without a row. The error is a
// *NoRowError for a machine without rates. A GPU has a row of kernels/cuda/cost.
func Estimate(f backend.Facts, variant string, threads int) (*Rates, string, error) {
	if f.Backend == "cuda" {
		gpu, ok := cost.Find(f.Device)
		if !ok {
			return nil, "", &NoRowError{f.Device, "the table of GPUs (docs/gpu-speed.md) has no row of it; leave out --speed, or plan with --gpu for one that it has, such as h200"}
		}
		return &Rates{GPU: &gpu}, fmt.Sprintf("%s, %s", gpu.Name, gpu.Source), nil
	}
	if f.Backend != "cpu" || f.SMs > 0 {
		return nil, "", &NoRowError{f.Device, "speed is predicted for backends cpu and cuda"}
	}
	base, _, _ := strings.Cut(variant, "+")
	if threads < 1 {
		return nil, "", &NoRowError{f.Device, fmt.Sprintf("the plan has %d threads; measure the machine: vapp doctor --measure", threads)}
	}
	row := &table[len(table)-1] // any other processor
	for i := range table {
		if table[i].variant == base {
			row = &table[i]
		}
	}
	r, err := reference()
	if err != nil {
		return nil, "", err
	}
	n := float64(threads)
	read := min(n*row.read, row.most)
	if f.Bandwidth > 0 {
		read = min(read, f.Bandwidth)
	}
	return r.scaled(threads, read, n*row.f32, n*row.bf16, n*row.int8, *row), row.name + ", " + row.from, nil
}

// scaled returns the reference's rates for other limits.
func (r *Rates) scaled(threads int, read, f32, bf16, int8 float64, row processor) *Rates {
	memory, vector, product := r.Read/read, r.F32/f32, r.BF16/bf16
	if row.pair > 0 {
		product = vector
	}
	out := &Rates{Threads: threads, Read: read, F32: f32, Variant: cmp.Or(row.variant, r.Variant), BF16: bf16, Int8: int8, Product: r.Product, Ops: map[string]Curve{}}
	for _, l := range r.Linear {
		if v, _ := variantOf(l.Kernel); row.variant != "" && strings.SplitN(v, "+", 2)[0] != row.variant {
			continue // its shape is that of other instructions: roof estimates it
		}
		one := l.Rows.At(1)
		c := Curve{X: l.Rows.X, Y: make([]float64, len(l.Rows.Y))}
		for i, y := range l.Rows.Y {
			part := min(1, one/y)
			c.Y[i] = y * (part*memory + (1-part)*product)
		}
		out.Linear = append(out.Linear, Linear{l.Kernel, l.Bytes, c})
	}
	for _, a := range r.Attention {
		a.Keys = a.Keys.times(memory)
		a.Seq, a.Row, a.Pair = a.Seq*vector, a.Row*vector, a.Pair*product
		if row.pair > 0 {
			a.Pair = 4 * float64(a.HeadDim) / (bf16 * row.pair)
		}
		out.Attention = append(out.Attention, a)
	}
	for name, c := range r.Ops {
		if name == "experts" {
			out.Ops[name] = c // a factor
			continue
		}
		out.Ops[name] = c.times(vector)
	}
	return out
}

// times returns the curve with its values multiplied.
func (c Curve) times(x float64) Curve {
	out := Curve{X: c.X, Y: make([]float64, len(c.Y))}
	for i, y := range c.Y {
		out.Y[i] = x * y
	}
	return out
}

// With returns the rates for another number of threads than were measured: products and ops in proportion,
// reading up to what was measured with all of them.
func (r *Rates) With(threads int) *Rates {
	if threads == r.Threads {
		return r
	}
	// One thread reads a larger share than its part: memory is shared.
	part := float64(threads) / float64(r.Threads)
	read := r.Read * min(1, part*1.2)
	return r.scaled(threads, read, r.F32*part, r.BF16*part, r.Int8*part, processor{})
}
