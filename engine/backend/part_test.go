package backend

import (
	"fmt"
	"slices"
	"testing"

	"vapp.dev/kernels"
)

// grid is a RowReader of tensors whose rows have the given number of bytes: a byte is 16·row + column.
type grid map[string]int

func (g grid) ReadRows(name string, row0, rows int, dst []byte) error {
	if len(dst) != rows*g[name] {
		return fmt.Errorf("%d bytes given for %d rows of %d bytes of %s", len(dst), rows, g[name], name)
	}
	return g.ReadColumns(name, row0, rows, 0, dst)
}

func (g grid) ReadColumns(name string, row0, rows int, first int64, dst []byte) error {
	size := len(dst) / rows
	if int(first)+size > g[name] {
		return fmt.Errorf("bytes %d to %d of rows of %d bytes of %s", first, int(first)+size, g[name], name)
	}
	for i := range dst {
		dst[i] = byte(16*(row0+i/size) + int(first) + i%size)
	}
	return nil
}

// TestParts reads the parts that a rank holds: some rows, and of them some columns.
func TestParts(t *testing.T) {
	check := func(what string, err error, got []byte, want ...byte) {
		t.Helper()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	dst := func(n int) []byte { return make([]byte, n) }
	src := grid{"w": 8, "s": 4, "codes": 16, "exponents": 3}
	w := Part{Tensor: "w", Format: kernels.F8E4M3, Scale: "s", ScaleFormat: kernels.F8E4M3}

	b := dst(4)
	w.Col0, w.Cols = 6, 2
	check("columns", ReadPart(src, w, 1, 2, b), b, 22, 23, 38, 39)
	w.Offset = true
	check("columns of bytes with an offset", ReadPart(src, w, 1, 2, b), b, 22^0x80, 23^0x80, 38^0x80, 39^0x80)
	b = dst(4)
	check("a transposed matrix", ReadTransposed(src, Part{Tensor: "w", Format: kernels.F8E4M3, Transposed: true, Row0: 3, Rows: 2, Col0: 1, Stride: 4}, 1, 2, b), b, 83, 84, 99, 100)

	b = dst(2)
	w.Col0, w.Cols = 2*ScaleBlock, 2*ScaleBlock
	check("scales of blocks", ReadScales(src, w, PerBlock, 0, 5, b), b, 82, 83)
	w.Col0, w.Cols = 64, 64
	check("scales of groups", ReadScales(src, w, PerGroup, 32, 5, b), b, 82, 83)
	b = dst(1)
	check("the scale of a row", ReadScales(grid{"s": 1}, w, PerChannel, 0, 5, b), b, 80)

	x := Part{Tensor: "codes", Scale: "exponents", Format: kernels.MXFP4, Col0: 32, Cols: 64, Whole: 96}
	codes, exponents := dst(64), dst(4)
	err := ReadMXFP4(src, x, 1, 2, 64, codes, exponents)
	check("exponents", err, exponents, 17, 18, 33, 34)
	check("codes", err, []byte{codes[0], codes[16], codes[32], codes[48]}, 64, 80, 112, 128) // blocks 4, 5, 7 and 8
}

// linked is a group that says which rank it is of.
type linked struct {
	Group
	tensor, pipe Shard
}

func (g linked) Tensor() Shard { return g.tensor }
func (g linked) Pipe() Shard   { return g.pipe }

// TestCheckGroup: programs of several ranks need the group of theirs.
func TestCheckGroup(t *testing.T) {
	second := Shard{Rank: 1, World: 2}
	for _, c := range []struct {
		p    *Program
		g    Group
		want string
	}{
		{&Program{Shard: Whole}, nil, ""},
		{&Program{Shard: second}, nil, "backend x: 2 ranks: unsupported: it is a single device"},
		{&Program{Shard: second}, linked{nil, second, Whole}, ""},
		{&Program{Shard: second}, linked{nil, Shard{Rank: 0, World: 2}, Whole}, "backend x: rank 1 of 2: unsupported: the group has made this rank 0 of 2"},
		{&Program{Shard: Whole, Ops: []Op{Receive{}}}, nil, "backend x: pipeline stages: unsupported: it is a single device"},
		{&Program{Shard: Whole, Ops: []Op{Send{}}}, linked{nil, Whole, Whole}, "backend x: pipeline stages: unsupported: it is a single device"},
		{&Program{Shard: Whole, Ops: []Op{Send{}}}, linked{nil, Whole, second}, ""},
	} {
		got := ""
		if err := CheckGroup("x", c.p, c.g); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.p, got, c.want)
		}
	}
}
