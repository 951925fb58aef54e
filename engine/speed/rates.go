// Package speed predicts how long a step takes. It counts the work of each op of a recorded
// program (weights, keys, elements) and multiplies it by rates: those that package measure found
// with the machine's own kernels, or those of a table of processors.
//
// It must not open a device, read a clock or do input or output: equal rates and programs give
// equal times. Start reading at Model.Step in step.go.
package speed

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda/cost"
)

// Version is the version of what is measured. Rates of another version are stale: raise it when a
// kernel becomes faster or slower, or when a field of Rates changes its meaning.
const Version = 3

// Rates are the rates of a machine's kernels with a number of threads. Times are seconds.
type Rates struct {
	Threads   int              `json:"threads"`
	Read      float64          `json:"read_bytes_per_second"` // in order, from memory
	F32       float64          `json:"f32_flop_per_second"`   // fused multiply-adds, from registers, by the instructions of Variant
	Variant   string           `json:"f32_variant"`
	BF16      float64          `json:"bf16_flop_per_second"`  // by the widest bf16 instruction; F32 without one
	Int8      float64          `json:"int8_op_per_second"`    // by AVX-512 VNNI; 0 without it
	Product   float64          `json:"product_fixed_seconds"` // of one Linear, whatever its size
	Linear    []Linear         `json:"linear"`                // by kernel
	Attention []Attention      `json:"attention"`             // by format, head size and group
	Ops       map[string]Curve `json:"ops"`                   // of one op by its elements, by backend.OpName
	// Estimates has what a layout estimates of its kernels (backend.Favored), by kernel: it counts where a
	// kernel's variant was not measured.
	Estimates map[string]backend.KernelRate `json:"-"`
	// GPU has the rates of a GPU: all others do not count then.
	GPU *cost.GPU `json:"-"`
}

// Linear is the rate of a kernel that multiplies with weights in memory: the seconds for one
// weight, by the rows of the step.
type Linear struct {
	Kernel string  `json:"kernel"` // backend.Packed.Kernel: "linear.avx512.q8_0"
	Bytes  float64 `json:"bytes_per_weight"`
	Rows   Curve   `json:"seconds_per_weight"`
}

// Attention is the rate of attention for keys and values of a format. Group is the number of
// query heads for each of keys and values.
type Attention struct {
	Format  string  `json:"format"`
	HeadDim int     `json:"head_dim"`
	Group   int     `json:"group"`
	Fixed   float64 `json:"fixed_seconds"`                // of one op
	Seq     float64 `json:"seconds_per_sequence_head"`    // of a decoding sequence and query head
	Keys    Curve   `json:"seconds_per_key"`              // of a key and KV head of a decoding sequence, by sequences
	Row     float64 `json:"seconds_per_prompt_row_head"`  // of a prompt's token and query head
	Pair    float64 `json:"seconds_per_prompt_pair_head"` // of a prompt's token, key and query head
}

// Curve is a function given by points, linear between them. Below the first point it has that point's
// value. Beyond the last one At goes on at the slope before it, Held keeps its value.
type Curve struct {
	X []float64 `json:"x"`
	Y []float64 `json:"y"`
}

// At returns the curve's value at x, of a time: beyond the last point it does not fall.
func (c Curve) At(x float64) float64 {
	n := len(c.X)
	switch {
	case n == 0:
		return 0
	case n == 1 || x <= c.X[0]:
		return c.Y[0]
	}
	i, _ := slices.BinarySearch(c.X, x)
	i = min(max(i, 1), n-1)
	part := (x - c.X[i-1]) / (c.X[i] - c.X[i-1])
	if part > 1 && c.Y[i] < c.Y[i-1] {
		return c.Y[i]
	}
	return c.Y[i-1] + part*(c.Y[i]-c.Y[i-1])
}

// Held returns the curve's value at x, of a factor or of a time for one of x: beyond the last point it
// has that point's value.
func (c Curve) Held(x float64) float64 {
	if n := len(c.X); n > 0 {
		x = min(x, c.X[n-1])
	}
	return c.At(x)
}

// AtRead returns the seconds of work that reads bytes from memory, measured as t seconds where memory read
// at from bytes per second, where it reads at to. The part of t in which the bytes are read changes with
// the rate, the rest does not.
func AtRead(t, bytes, from, to float64) float64 {
	reading := min(t, bytes/from)
	return t - reading + reading*from/to
}

// AtRead returns the rates of the machine where memory reads at read bytes per second.
func (r Rates) AtRead(read float64) Rates {
	linear := make([]Linear, len(r.Linear))
	for i, l := range r.Linear {
		curve := Curve{X: l.Rows.X, Y: make([]float64, len(l.Rows.Y))}
		for j, t := range l.Rows.Y {
			curve.Y[j] = AtRead(t, l.Bytes, r.Read, read)
		}
		l.Rows = curve.Rising()
		linear[i] = l
	}
	r.Read, r.Linear = read, linear
	return r
}

// Rising returns the curve without values above those of later points: more rows take no less time
// than fewer, so such a value was disturbed.
func (c Curve) Rising() Curve {
	out := Curve{X: c.X, Y: slices.Clone(c.Y)}
	for i := len(out.Y) - 2; i >= 0; i-- {
		out.Y[i] = min(out.Y[i], out.Y[i+1])
	}
	return out
}

// check returns why the curve is no function of positive numbers up to most.
func (c Curve) check(most float64) error {
	if len(c.X) == 0 || len(c.X) != len(c.Y) {
		return fmt.Errorf("%d points with %d values", len(c.X), len(c.Y))
	}
	for i := range c.X {
		if !rate(c.X[i]) || !rate(c.Y[i]) || c.Y[i] > most || i > 0 && c.X[i] <= c.X[i-1] {
			return fmt.Errorf("point %d is %g, %g", i, c.X[i], c.Y[i])
		}
	}
	return nil
}

// The largest numbers that Check accepts: of seconds, of the factor of experts, and of rates.
const mostSeconds, mostFactor, mostRate = 10, 1000, 1e18

// rate reports whether x is a positive number of a possible size.
func rate(x float64) bool { return x > 0 && x <= mostRate }

// seconds reports whether all of list are positive times of a possible size.
func seconds(list ...float64) bool {
	return !slices.ContainsFunc(list, func(x float64) bool { return !rate(x) || x > mostSeconds })
}

// Check returns an error if a rate is missing, no positive number, or beyond what machines take.
func (r *Rates) Check() error {
	if r.Threads < 1 || !rate(r.Read) || !rate(r.F32) || !rate(r.BF16) || !(r.Int8 == 0 || rate(r.Int8)) || !seconds(r.Product) {
		return fmt.Errorf("speed: rates of %d threads: read %g, f32 %g, bf16 %g, int8 %g, product %g", r.Threads, r.Read, r.F32, r.BF16, r.Int8, r.Product)
	}
	if len(r.Attention) == 0 {
		return errors.New("speed: no rate of attention")
	}
	for _, l := range r.Linear {
		if !rate(l.Bytes) || l.Kernel == "" {
			return fmt.Errorf("speed: kernel %q, %g bytes a weight", l.Kernel, l.Bytes)
		}
		if err := l.Rows.check(mostSeconds); err != nil {
			return fmt.Errorf("speed: kernel %q, %g bytes a weight: %w", l.Kernel, l.Bytes, err)
		}
	}
	for _, a := range r.Attention {
		if a.HeadDim < 1 || a.Group < 1 || !seconds(a.Fixed, a.Seq, a.Row, a.Pair) {
			return fmt.Errorf("speed: attention of %s, %d × %d: %g, %g, %g and %g seconds", a.Format, a.Group, a.HeadDim, a.Fixed, a.Seq, a.Row, a.Pair)
		}
		if err := a.Keys.check(mostSeconds); err != nil {
			return fmt.Errorf("speed: attention of %s, %d × %d: %w", a.Format, a.Group, a.HeadDim, err)
		}
	}
	for _, name := range ops {
		most := float64(mostSeconds)
		if name == "experts" {
			most = mostFactor
		}
		if err := r.Ops[name].check(most); err != nil {
			return fmt.Errorf("speed: op %s: %w", name, err)
		}
	}
	return nil
}

// Basis is where a rate comes from.
type Basis string

// The bases, the surest first.
const (
	Measured  Basis = "measured"  // with this kernel on this machine
	Similar   Basis = "similar"   // measured with another format of the same variant
	Estimated Basis = "estimated" // from the rates of memory and registers
)

// Kernel is the rate of a Linear kernel as plans print it.
type Kernel struct {
	Decode  float64 // bytes of weights a second, one row
	Prefill float64 // operations a second, 512 rows
	Basis   Basis
}

// Kernel returns the rate of a Linear kernel by its name (backend.Packed.Kernel); bytes is what
// one of its weights takes.
func (r *Rates) Kernel(name string, bytes float64) Kernel {
	at, basis := r.linear(name, bytes)
	const rows = 512
	return Kernel{Decode: bytes / at(1), Prefill: 2 * rows / at(rows), Basis: basis}
}

// linear returns the seconds for one weight by rows.
func (r *Rates) linear(name string, bytes float64) (func(rows float64) float64, Basis) {
	variant, _ := variantOf(name)
	var near *Linear
	for i := range r.Linear {
		l := &r.Linear[i]
		if l.Kernel == name {
			return l.Rows.At, Measured
		}
		if v, _ := variantOf(l.Kernel); v == variant && (near == nil || math.Abs(l.Bytes-bytes) < math.Abs(near.Bytes-bytes)) {
			near = l
		}
	}
	if near != nil {
		scale := max(1, bytes/near.Bytes)
		return func(rows float64) float64 { return scale * near.Rows.At(rows) }, Similar
	}
	return r.roof(name, bytes), Estimated
}

// variantOf splits "linear.avx512+int8.q8_0" into "avx512+int8" and "q8_0".
func variantOf(kernel string) (variant, format string) {
	parts := strings.SplitN(kernel, ".", 3)
	if len(parts) < 3 {
		return "", ""
	}
	return parts[1], parts[2]
}

// share is what kernels reach of a limit: of bandwidth at one row, of the rate of products at
// many.
type share struct{ read, rate float64 }

// Shares of the limits where a kernel was not measured and Rates.Estimates has none. docs/speed.md has their sources.
var shares = map[string]share{
	"amx": {0.80, 0.20}, "amx+outside": {0.90, 0.12}, "amx+int8": {0.80, 0.60}, "amx+w8a8": {0.80, 0.40},
	"avx512bf16": {0.80, 0.70}, "avx512": {0.80, 0.75}, "avx2": {0.70, 0.70}, "generic": {0.40, 0.40},
	"int8": {0.80, 0.60},
}

// narrow is the share of bandwidth that formats below six bits reach of what wider ones do.
const narrow = 0.80

// roof returns the seconds for one weight of a kernel that was not measured: the longer of
// reading and multiplying.
func (r *Rates) roof(name string, bytes float64) func(rows float64) float64 {
	variant, format := variantOf(name)
	base, inputs, _ := strings.Cut(variant, "+")
	s, ok := shares[variant]
	if !ok && inputs != "" {
		s, ok = shares["int8"], true
	}
	if !ok {
		if s, ok = shares[base]; !ok {
			s = shares["generic"]
		}
	}
	flops, tile := r.F32, 1.0
	switch {
	case (inputs == "int8" || inputs == "w8a8") && r.Int8 > 0:
		flops = r.Int8
	case base == "amx":
		flops, tile = r.BF16, 16
	case base == "avx512bf16":
		flops = r.BF16
	default:
		flops = r.F32 * min(1, lanes(base)/lanes(r.Variant))
	}
	if f, ok := kernels.Parse(strings.SplitN(format, "+", 2)[0]); ok && f.Quantized() && bytes < 0.75 {
		s.read *= narrow
	}
	if e, ok := r.Estimates[name]; ok {
		s, flops = share{e.Decode, e.Prefill}, r.BF16
	}
	return func(rows float64) float64 {
		if rows > 2 {
			rows = math.Ceil(rows/tile) * tile
		}
		return max(bytes/(r.Read*s.read), 2*rows/(flops*s.rate))
	}
}

// lanes returns how many numbers an f32 instruction of a variant multiplies.
func lanes(variant string) float64 {
	switch variant {
	case "generic":
		return 1
	case "neon", "dotprod", "i8mm":
		return 4
	case "avx2":
		return 8
	}
	return 16
}

// attention returns the rate for a format, head size and group: the nearest in that order, scaled by
// the size of heads. ok is false without any.
func (r *Rates) attention(format string, dim, group int) (Attention, bool) {
	var best *Attention
	far := func(a *Attention) float64 {
		d := math.Abs(math.Log2(float64(a.HeadDim) / float64(dim)))
		if a.Format != format {
			d += 100
		}
		return d
	}
	for i := range r.Attention {
		a := &r.Attention[i]
		if best == nil || far(a) < far(best) {
			best = a
		}
	}
	if best == nil {
		return Attention{}, false
	}
	low, high := best, best
	for i := range r.Attention {
		a := &r.Attention[i]
		if a.Format != best.Format || a.HeadDim != best.HeadDim {
			continue
		}
		if a.Group <= group && (low.Group > group || a.Group > low.Group) {
			low = a
		}
		if a.Group >= group && (high.Group < group || a.Group < high.Group) {
			high = a
		}
	}
	out := mix(*low, *high, group)
	scale := float64(dim) / float64(best.HeadDim)
	out.Seq, out.Row, out.Pair = scale*out.Seq, scale*out.Row, scale*out.Pair
	out.Keys = Curve{X: out.Keys.X, Y: slices.Clone(out.Keys.Y)}
	for i := range out.Keys.Y {
		out.Keys.Y[i] *= scale
	}
	return out, true
}

// mix returns the rates between those of two groups.
func mix(a, b Attention, group int) Attention {
	if a.Group == b.Group {
		return a
	}
	part := min(1, max(0, float64(group-a.Group)/float64(b.Group-a.Group)))
	at := func(x, y float64) float64 { return x + part*(y-x) }
	out := a
	out.Fixed, out.Seq, out.Row, out.Pair = at(a.Fixed, b.Fixed), at(a.Seq, b.Seq), at(a.Row, b.Row), at(a.Pair, b.Pair)
	out.Keys = Curve{X: a.Keys.X, Y: make([]float64, len(a.Keys.X))}
	for i, x := range a.Keys.X {
		out.Keys.Y[i] = at(a.Keys.Y[i], b.Keys.Held(x))
	}
	return out
}
