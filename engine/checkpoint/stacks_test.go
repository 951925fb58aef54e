package checkpoint

import (
	"bytes"
	"errors"
	"testing"

	"vapp.dev/kernels"
)

// TestStack reads the tensors of three experts as one.
func TestStack(t *testing.T) {
	const name = "model.layers.1.mlp.experts.*.up_proj.weight"
	one := func(name string, f kernels.Format, shape ...int64) TensorInfo {
		return TensorInfo{Name: name, Shape: shape, Format: f}
	}
	layout := []TensorInfo{
		one("model.layers.1.mlp.experts.1.up_proj.weight", kernels.BF16, 5, 8), one("model.layers.1.mlp.experts.0.up_proj.weight", kernels.BF16, 5, 8),
		one("model.layers.1.mlp.experts.2.up_proj.weight", kernels.BF16, 5, 8), one("model.layers.1.mlp.experts.4.up_proj.weight", kernels.BF16, 5, 8),
		one("a.experts.0.scale", kernels.F32), one("a.experts.1.scale", kernels.F32),
		one("b.experts.0.w", kernels.F32, 2, 2), one("b.experts.1.w", kernels.F32, 2, 3),
		one("c.experts.0.w", kernels.F32, 2, 2), one("c.experts.1.w", kernels.F16, 2, 2),
	}
	c, err := Dummy(llama1B(t), layout, 1)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := c.Tensor(name)
	if !ok || len(s.Shape) != 3 || s.Shape[0] != 3 || s.Shape[1] != 5 || s.Shape[2] != 8 || s.Format != kernels.BF16 || s.Bytes != 3*5*8*2 {
		t.Fatalf("the stack is %+v, %v", s, ok)
	}
	if s, ok := c.Tensor("a.experts.*.scale"); !ok || s.Rows() != 2 || s.RowElements() != 1 {
		t.Errorf("a stack of numbers is %+v, %v", s, ok)
	}
	for _, none := range []string{"model.layers.0.mlp.experts.*.up_proj.weight", "b.experts.*.w", "c.experts.*.w", "model.*.w"} {
		if s, ok := c.Tensor(none); ok {
			t.Errorf("%s is %+v", none, s)
		}
	}
	var want []byte
	for e := range 3 {
		b := make([]byte, 5*8*2)
		if err := c.ReadRows(member(name, e), 0, 5, b); err != nil {
			t.Fatal(err)
		}
		want = append(want, b...)
	}
	for row0 := range 15 {
		for rows := range 16 - row0 {
			got := make([]byte, rows*16)
			if err := c.ReadRows(name, row0, rows, got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want[row0*16:(row0+rows)*16]) {
				t.Errorf("rows %d to %d are others", row0, row0+rows)
			}
		}
	}
	columns, second := make([]byte, 15*4), make([]byte, 5*4)
	if err := errors.Join(c.ReadColumns(name, 0, 15, 8, columns), c.ReadColumns(member(name, 1), 0, 5, 8, second)); err != nil || !bytes.Equal(columns[5*4:10*4], second) {
		t.Errorf("columns of the second matrix are %x, want %x (%v)", columns[5*4:10*4], second, err)
	}
	for what, err := range map[string]error{
		"columns in a short buffer": c.ReadColumns(name, 0, 3, 8, make([]byte, 7)), "columns past the row": c.ReadColumns(name, 0, 1, 8, make([]byte, 16)),
		"a row of an expert that is missing": c.ReadRows(name, 14, 2, make([]byte, 32)), "a row below 0": c.ReadRows(name, -1, 1, make([]byte, 16)),
		"a short buffer": c.ReadRows(name, 0, 2, make([]byte, 16)), "another name": c.ReadRows("model.*.w", 0, 1, make([]byte, 16)),
	} {
		if err == nil {
			t.Errorf("%s is read", what)
		}
	}
	if _, ok := c.Dummy(name); ok {
		t.Error("a stack has one formula")
	}
	if m := c.members(name); len(m) != 3 || m[2] != member(name, 2) {
		t.Errorf("the members are %q", m)
	}
}
