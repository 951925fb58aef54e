//go:build linux && cgo && cuda

package driver

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
)

// halves copies numbers to the device as bf16.
func halves(t *testing.T, c *Context, s *Stream, v []float32) Address {
	t.Helper()
	b := make([]uint16, len(v))
	for i, x := range v {
		b[i] = uint16(math.Float32bits(x) >> 16)
	}
	p, err := c.Alloc(int64(2 * len(b)))
	must(t, err)
	must(t, s.ToDevice(p, unsafe.Pointer(&b[0]), int64(2*len(b))))
	return p
}

// emulatedBLAS opens the emulated library on a device.
func emulatedBLAS(t *testing.T) (*Context, *Stream, *BLAS) {
	t.Helper()
	t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
	c, s := open(t, "order=lazy")
	b, err := c.BLAS()
	must(t, err)
	return c, s, b
}

// TestProducts: a list's products compute the rows of each run, rounded up to a unit and at
// most Most. Graphs give the same results once the library's kernels are loaded. A product
// that the library rejects returns its error, and a step allocates no Go memory.
func TestProducts(t *testing.T) {
	c, s, b := emulatedBLAS(t)
	const in, out, most, unit, size = 32, 12, 130, 64, 1 << 16
	w, x, bias := make([]float32, out*in), make([]float32, most*in), make([]float32, out)
	for i := range w {
		w[i] = float32(i%7 - 3)
	}
	for i := range x {
		x[i] = float32(i%11 - 5)
	}
	for i := range bias {
		bias[i] = float32(100 * i)
	}
	work, err := c.Alloc(size)
	must(t, err)
	y := floats(t, c, s, make([]float32, most*out))
	m := Multiplication{
		In: in, Out: out, Most: most, Unit: unit, W: halves(t, c, s, w), X: halves(t, c, s, x), Bias: floats(t, c, s, bias), Y: y, Workspace: work, Bytes: size,
		Args: int(unsafe.Sizeof(cuda.LibraryArgs{})), RowsAt: int(unsafe.Offsetof(cuda.LibraryArgs{}.Rows)),
	}
	must(t, b.Ask(m))
	check := func(what string, rows int, biased bool) {
		t.Helper()
		got := fetch(t, s, y, most*out)
		for i := range got {
			want := float32(0) // beyond the unit
			if i/out < rows {
				for k := range in {
					want += w[i%out*in+k] * x[i/out*in+k]
				}
				if biased {
					want += bias[i%out]
				}
			}
			if got[i] != want {
				t.Fatalf("%s: row %d, feature %d is %v, want %v", what, i/out, i%out, got[i], want)
			}
		}
		must(t, s.Fill(y, 0, 4*most*out))
	}
	biased := listed(t, b, m)
	plain := m
	plain.Bias = 0
	unbiased := listed(t, b, plain)
	for rows, computed := range map[int]int{1: 64, 64: 64, 65: 128, 129: 130, 130: 130} {
		must(t, biased.Run(s, 0, 1, [NumBound]int32{int32(rows)}))
		check("with a bias", computed, true)
		must(t, unbiased.Run(s, 0, 1, [NumBound]int32{int32(rows)}))
		check("without", computed, false)
	}
	must(t, biased.Run(s, 0, 1, [NumBound]int32{0}))
	check("no row", 0, true)
	var refused *BLASError
	if err := biased.Run(s, 0, 1, [NumBound]int32{most + 1}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "device 0, emulated GPU: cublasLtMatmul: CUBLAS_STATUS_INVALID_VALUE") {
		t.Errorf("more rows than most: %v", err)
	}
	if n := testing.AllocsPerRun(10, func() { biased.Run(s, 0, 1, [NumBound]int32{1}) }); n != 0 {
		t.Errorf("a product allocates %v times", n)
	}
	must(t, s.Wait(soon))

	// Another shape, which the library has not run yet.
	fresh := m
	fresh.Out = out - 4
	l := listed(t, b, fresh)
	capture := func() (*Graph, error) {
		return s.Capture(func() error { return l.Run(s, 0, 1, [NumBound]int32{3}) })
	}
	if _, err := capture(); !errors.As(err, &refused) || refused.Name != "CUBLAS_STATUS_INTERNAL_ERROR" {
		t.Errorf("captured before its kernel is there: %v", err)
	}
	must(t, l.Load(s, 0, 1, [NumBound]int32{3}))
	must(t, s.Wait(soon))
	must(t, s.Fill(y, 0, 4*most*out))
	before := Counted("vapp_emulated_host")
	must(t, l.Load(s, 0, 1, [NumBound]int32{3}))
	if Counted("vapp_emulated_host") != before {
		t.Error("loaded kernels are loaded again")
	}
	g, err := capture()
	must(t, err)
	if got := fetch(t, s, y, 1); got[0] != 0 {
		t.Error("what was captured ran")
	}
	must(t, g.Launch(s))
	want := float32(0)
	for k := range in {
		want += w[k] * x[k]
	}
	if got := fetch(t, s, y, 1); got[0] != want {
		t.Errorf("by the graph: %v, want %v", got[0], want)
	}
	must(t, g.Close())

	m.In = 6 // rows of 12 bytes
	var none *NoAlgorithm
	if err := b.Ask(m); !errors.As(err, &none) || none.In != m.In || none.Rows != unit {
		t.Errorf("rows of 12 bytes: %v", err)
	}
	must(t, b.Close())
}

// listed returns a list of one product; its first symbol is the row count.
func listed(t *testing.T, b *BLAS, m Multiplication) *List {
	t.Helper()
	p, err := b.Product(m)
	must(t, err)
	l, err := NewList([]Launch{{
		Product: p, Blocks: [3]int{1, 1, 1}, Threads: [3]int{1, 1, 1}, Args: make([]byte, m.Args),
		Symbols: []Symbol{{At: m.RowsAt, Times: 1, Over: 1}, {At: -1, Times: 1, Over: int32(m.Unit)}},
	}})
	must(t, err)
	t.Cleanup(l.Close)
	return l
}

// codes copies bytes to the device.
func codes(t *testing.T, c *Context, s *Stream, b []byte) Address {
	t.Helper()
	p, err := c.Alloc(int64(len(b)))
	must(t, err)
	must(t, s.ToDevice(p, unsafe.Pointer(&b[0]), int64(len(b))))
	return p
}

// TestScaledProducts: E4M3 products have a scale for each row, or for each block of 128, in
// the library's layout; the stride of X's scales is the number of computed rows. Cases that
// it cannot multiply have no algorithm: other devices, rows that are no multiple of 4 with
// blocks, and features and inputs that are no multiple of 16 bytes.
func TestScaledProducts(t *testing.T) {
	t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
	c, s := open(t, "order=lazy")
	const in, out, most, unit, size, groups, across = 384, 144, 100, 64, 1 << 16, 3, 4
	w, x := make([]byte, out*in), make([]byte, most*in)
	for i := range w { // 1, -2, 0.5; no NaN
		w[i] = []byte{0x38, 0xc0, 0x30}[i*i/7%3]
	}
	for i := range x {
		x[i] = []byte{0x38, 0x40, 0xb0, 0}[i*i/5%4]
	}
	value := map[byte]float32{0x38: 1, 0xc0: -2, 0x30: 0.5, 0x40: 2, 0xb0: -0.5}
	scales := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(1+i%5) / 4
		}
		return v
	}
	ofW, ofX := scales(out), scales(most)
	ofBlocks, ofGroups := scales(2*across), scales(groups*most)
	work, err := c.Alloc(size)
	must(t, err)
	y := floats(t, c, s, make([]float32, most*out))
	m := Multiplication{
		Numbers: E4M3, In: in, Out: out, Most: most, Unit: unit, W: codes(t, c, s, w), X: codes(t, c, s, x), WScales: floats(t, c, s, ofW), XScales: floats(t, c, s, ofX),
		Y: y, Workspace: work, Bytes: size, Args: int(unsafe.Sizeof(cuda.LibraryArgs{})), RowsAt: int(unsafe.Offsetof(cuda.LibraryArgs{}.Rows)),
	}
	blocks := m
	blocks.Blocks, blocks.WScales, blocks.XScales = true, floats(t, c, s, ofBlocks), floats(t, c, s, ofGroups)
	b, err := c.BLAS()
	must(t, err)
	for _, m := range []Multiplication{m, blocks} {
		l := listed(t, b, m)
		for rows, computed := range map[int]int{3: unit, 99: most} {
			must(t, s.Fill(y, 0, 4*most*out))
			must(t, l.Run(s, 0, 1, [NumBound]int32{int32(rows)}))
			got := fetch(t, s, y, computed*out)
			for i := range got {
				row, feature, want := i/out, i%out, float32(0)
				for k := range in {
					by := ofW[feature] * ofX[row]
					if m.Blocks {
						by = ofBlocks[feature/128*across+k/128] * ofGroups[k/128*computed+row]
					}
					want += value[w[feature*in+k]] * value[x[row*in+k]] * by
				}
				if got[i] != want {
					t.Fatalf("blocks %v, %d rows: row %d, feature %d is %v, want %v", m.Blocks, rows, row, feature, got[i], want)
				}
			}
		}
	}
	must(t, b.Close())

	asked := func(m Multiplication) error { // asks a new handle without cached algorithms
		b, err := c.BLAS()
		must(t, err)
		defer func() { must(t, b.Close()) }()
		return b.Ask(m)
	}
	var none *NoAlgorithm
	for what, change := range map[string]func(*Multiplication){
		"rows in blocks":   func(m *Multiplication) { m.Most, m.Blocks = 98, true },
		"inputs":           func(m *Multiplication) { m.In = 40 },
		"features":         func(m *Multiplication) { m.Out = 142 },
		"no scales of W":   func(m *Multiplication) { m.WScales = 0 },
		"no scales of X":   func(m *Multiplication) { m.XScales = 0 },
		"scales of blocks": func(m *Multiplication) { m.WScales, m.Blocks = m.WScales+4, true },
		"scales of bf16":   func(m *Multiplication) { m.Numbers = BF16 },
		"a bias":           func(m *Multiplication) { m.Bias = m.Y },
	} {
		m := m
		change(&m)
		if err := asked(m); !errors.As(err, &none) || !strings.Contains(err.Error(), m.Numbers.String()+" within") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, asked(m))
	must(t, Emulate("capability=10.0"))
	for _, m := range []Multiplication{m, blocks} {
		if err := asked(m); !errors.As(err, &none) || none.Format != "f8_e4m3" {
			t.Errorf("on another device, blocks %v: %v", m.Blocks, err)
		}
	}
	must(t, Emulate("reset"))
	t.Setenv("VAPP_EMULATED_CUBLASLT", "version=120803")
	var old *BLASTooOld
	if err := asked(m); !errors.As(err, &old) || !strings.Contains(err.Error(), "cuBLASLt is 12.8.3 and 12.9.0 is needed: ") {
		t.Errorf("an older library: %v", err)
	}
}

// TestResultsInBF16: results in bf16 are those in float32, to the nearest and of two the even one; the text of a shape says
// so. Refused are products of fp16, with a bias, and with 8-bit numbers if rows of Y are no whole 16 bytes: by the library too.
func TestResultsInBF16(t *testing.T) {
	c, s, b := emulatedBLAS(t)
	const in, out, most, unit, size = 256, 144, 100, 64, 1 << 16
	numbers := func(n int) (Address, Address) { // bf16 with whole sums, and E4M3
		wide, codes8 := make([]float32, n), make([]byte, n)
		for i := range n {
			wide[i], codes8[i] = float32(i*i/7%23-9), byte(0x2d+i*i/5%23+i%2<<7)
		}
		return halves(t, c, s, wide), codes(t, c, s, codes8)
	}
	scales := make([]float32, 2*most)
	for i := range scales {
		scales[i] = 1 + float32(i%13)/64
	}
	w, w8 := numbers(out * in)
	x, x8 := numbers(most * in)
	work, err := c.Alloc(size)
	must(t, err)
	plain := Multiplication{
		In: in, Out: out, Most: most, Unit: unit, W: w, X: x, Y: floats(t, c, s, make([]float32, most*out)), Workspace: work, Bytes: size,
		Args: int(unsafe.Sizeof(cuda.LibraryArgs{})), RowsAt: int(unsafe.Offsetof(cuda.LibraryArgs{}.Rows)),
	}
	rows := plain
	rows.Numbers, rows.W, rows.X, rows.WScales, rows.XScales = E4M3, w8, x8, floats(t, c, s, scales), floats(t, c, s, scales)
	blocks := rows
	blocks.Blocks = true
	for _, m := range []Multiplication{plain, rows, blocks} {
		run := func(m Multiplication, n int) ([]float32, Shape) {
			must(t, s.Fill(m.Y, 0x11, 4*most*out))
			must(t, listed(t, b, m).Run(s, 0, 1, [NumBound]int32{3}))
			shapes, err := b.Shapes(m)
			must(t, err)
			return fetch(t, s, m.Y, n), shapes[0]
		}
		wide, of := run(m, unit*out)
		m.YBF16 = true
		y, shape := run(m, unit*out/2+1) // two in each
		up, ties := 0, 0
		for i, f := range wide {
			bits := math.Float32bits(f)
			low, want := bits&0xffff, uint16(bits>>16)
			if low > 0x8000 || low == 0x8000 && want&1 != 0 {
				want, up = want+1, up+1
			}
			if low == 0x8000 {
				ties++
			}
			if got := uint16(math.Float32bits(y[i/2]) >> (i % 2 * 16)); got != want {
				t.Fatalf("%v: row %d, feature %d is %#x, want %#x of %v", shape, i/out, i%out, got, want, f)
			}
		}
		if up < len(wide)/4 || m.Numbers == BF16 && ties == 0 || math.Float32bits(y[len(y)-1]) != 0x11111111 {
			t.Errorf("%v: %d of %d numbers are rounded up, %d are in the middle, behind them is %#x", shape, up, len(wide), ties, math.Float32bits(y[len(y)-1]))
		}
		if shape.String() != of.String()+", results in bf16" || shape.Algorithms()[0] == of.Algorithms()[0] {
			t.Errorf("%v has an algorithm of %v", shape, of)
		}
	}

	half, biased := plain, plain
	half.Numbers, biased.Bias = F16, rows.WScales
	rows.Out, blocks.Out = 140, 140
	formats := []string{"f16 with results in bf16", "bf16 with results in bf16 and a bias", "f8_e4m3 with results in bf16", "f8_e4m3 with results in bf16"}
	for i, m := range []Multiplication{half, biased, rows, blocks} {
		desc, err := b.desc(m) // with results in float32 each of them is a product
		must(t, err)
		must(t, b.Ask(m))
		m.YBF16 = true
		var none, other *NoAlgorithm
		_, err = b.all(m, desc)
		if asked := b.Ask(m); !errors.As(asked, &none) || none.Rows != unit || none.Format != formats[i] || !errors.As(err, &other) {
			t.Errorf("%s: %v; by the library: %v", formats[i], asked, err)
		}
		if _, err := b.desc(m); (err != nil) != (m.Numbers != E4M3) {
			t.Errorf("%s, before the library is asked: %v", formats[i], err)
		}
		b.freeDesc(desc)
	}
	must(t, b.Close())
}

// TestAligned: aligned returns the exact alignment of addresses.
func TestAligned(t *testing.T) {
	var got []int
	for _, at := range []Address{0, 4096, 256, 128, 192, 8, 3} {
		got = append(got, aligned(at, 256))
	}
	if want := []int{256, 256, 256, 128, 64, 8, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
