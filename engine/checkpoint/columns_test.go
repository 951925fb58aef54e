package checkpoint

import (
	"bytes"
	"testing"

	"vapp.dev/kernels"
)

// TestReadColumns checks that pieces of rows are the bytes that ReadRows has there, and that pieces
// outside a tensor are refused.
func TestReadColumns(t *testing.T) {
	c := opened(t, gemma4E(true))
	const name = "model.embed_tokens_per_layer.weight"
	x, ok := c.Tensor(name)
	if !ok {
		t.Fatal("no table")
	}
	rows, size := int(x.Rows()), x.RowBytes()
	all := make([]byte, int64(rows)*size)
	if err := c.ReadRows(name, 0, rows, all); err != nil {
		t.Fatal(err)
	}
	for _, p := range [][3]int64{{0, size, 0}, {16, 16, 0}, {48, 16, 3}, {0, 4, 1}} { // first byte, bytes, first row
		first, n, row0 := p[0], p[1], int(p[2])
		got, want := make([]byte, int64(rows-row0)*n), []byte(nil)
		for r := row0; r < rows; r++ {
			want = append(want, all[int64(r)*size+first:][:n]...)
		}
		if err := c.ReadColumns(name, row0, rows-row0, first, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("bytes %d to %d from row %d on: %x, want %x (%v)", first, first+n, row0, got, want, err)
		}
	}
	for _, p := range [][4]int{{0, rows, 52, 16}, {0, rows, -4, 16}, {1, rows, 0, 16}, {-1, 1, 0, 16}, {0, 3, 0, 5}} { // first row, rows, first byte, bytes a row
		dst := make([]byte, p[1]*p[3])
		if p[3] == 5 {
			dst = dst[:14] // no whole number for each row
		}
		wantError(t, c.ReadColumns(name, p[0], p[1], int64(p[2]), dst), c.path, name)
	}
	wantError(t, c.ReadColumns("other", 0, 1, 0, make([]byte, 4)), c.path, "other")
}

// TestDummyColumns checks that pieces of a dummy tensor differ and do not depend on how many rows are
// read at once.
func TestDummyColumns(t *testing.T) {
	c, err := Dummy(llama1B(t), []TensorInfo{{Name: "a.weight", Shape: []int64{16, 512}, Format: kernels.BF16}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	read := func(row0, rows int, first int64) []byte {
		t.Helper()
		b := make([]byte, 256*rows)
		if err := c.ReadColumns("a.weight", row0, rows, first, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	if all := read(0, 16, 256); !bytes.Equal(read(5, 3, 256), all[5*256:8*256]) || bytes.Equal(read(0, 16, 512), all) || bytes.Equal(all[:256], all[256:512]) {
		t.Error("pieces are alike, or depend on the rows read with them")
	}
}
