package ranks

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
)

// encodes is an encoder that keeps what it is given.
type encodes struct {
	in     *backend.ItemInput
	got    []byte
	shades []float32
	across []int32
	bound  backend.EncodeBinding
	n      int
	waited int
}

func (e *encodes) Item() *backend.ItemInput { return e.in }
func (e *encodes) WaitItem() error          { e.waited++; return nil }
func (e *encodes) Encode(_ backend.Executable, b backend.EncodeBinding) error {
	e.bound, e.n = b, e.n+1
	e.shades = slices.Clone(e.in.Colours)
	e.got, e.across = slices.Clone(e.in.Pixels[:b.Patches*len(e.in.Pixels)/len(e.in.Across)]), slices.Clone(e.in.Across[:b.Patches])
	return nil
}

// program is an executable that nothing runs.
type program struct{}

func (program) Program() *backend.Program { return nil }

var itemShape = backend.EncoderShape{Patches: 6, Cols: 5, Rows: 3, Width: 8}

func newEncodes() (*encodes, *run) {
	e := &encodes{in: itemShape.Carve(make([]byte, itemShape.ItemBytes()))}
	return e, &run{Follower: &Follower{}, Work: Work{Encoder: e, Tower: program{}}}
}

// sizeOf returns the payload of item.
func sizeOf(patches, rows, at int) (b []byte) {
	for _, n := range []int{patches, rows, at} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// bytesOfItem returns an item's bytes as they travel, patch t in column 10 + t.
func bytesOfItem(patches int) (b []byte) {
	in := itemShape.Carve(make([]byte, itemShape.ItemBytes()))
	for i := range in.Colours {
		in.Colours[i] = float32(i)
	}
	for i := range in.Pixels {
		in.Pixels[i] = byte(i)
	}
	for t := range in.Across {
		in.Across[t] = int32(10 + t)
	}
	for _, part := range parts(in, patches) {
		b = append(b, part...)
	}
	return b
}

// TestItem: an item arrives in frames of any size, and is encoded once, behind the last byte. Two follow each other.
func TestItem(t *testing.T) {
	for size := 1; size < 40; size += 7 {
		e, r := newEncodes()
		for k, patches := range []int{6, 4} {
			all := bytesOfItem(patches)
			if err := r.handle(frame{kind: item, b: sizeOf(patches, 2, k)}); err != nil {
				t.Fatal(err)
			}
			for part := range slices.Chunk(all, size) {
				if e.n != k {
					t.Fatal("encoded before the last byte")
				}
				if err := r.handle(frame{kind: pixels, b: part}); err != nil {
					t.Fatal(err)
				}
			}
			if want := (backend.EncodeBinding{Patches: patches, Rows: 2, At: int32(k)}); e.n != k+1 || e.bound != want || e.waited != k {
				t.Fatalf("%d encodings, the last of %+v, %d waits; want %+v", e.n, e.bound, e.waited, want)
			}
			for i, x := range e.got {
				if int(x) != i || e.shades[i] != float32(i) {
					t.Fatalf("number %d is %v", i, x)
				}
			}
			if !slices.Equal(e.across, []int32{10, 11, 12, 13, 14, 15}[:patches]) {
				t.Fatalf("columns %v", e.across)
			}
		}
	}
}

// TestItemRefused: frames that rank 0 does not send are errors.
func TestItemRefused(t *testing.T) {
	for want, frames := range map[string][]frame{
		"this rank encodes none":       {{kind: 0}, {kind: item, b: sizeOf(1, 1, 0)}},
		"buffers of 6":                 {{kind: item, b: sizeOf(7, 1, 0)}},
		"an item of -1 patches":        {{kind: item, b: sizeOf(-1, 1, 0)}},
		"in 3 bytes":                   {{kind: item, b: []byte{1, 2, 3}}},
		"in the middle of an item":     {{kind: item, b: sizeOf(2, 1, 0)}, {kind: move}},
		"4 bytes follow an item":       {{kind: item, b: sizeOf(1, 1, 0)}, {kind: pixels, b: append(bytesOfItem(1), 1, 2, 3, 4)}},
		"1037 bytes follow an item":    {{kind: item, b: sizeOf(1, 1, 0)}, {kind: pixels, b: bytesOfItem(1)}, {kind: pixels, b: bytesOfItem(1)}},
		"2 bytes follow an item":       {{kind: pixels, b: []byte{1, 2}}},
		"kind 10 in the middle of an ": {{kind: item, b: sizeOf(2, 1, 0)}, {kind: pixels, b: []byte{1}}, {kind: pixels}, {kind: item, b: sizeOf(2, 1, 0)}},
	} {
		_, r := newEncodes()
		var err error
		for _, f := range frames {
			if f.kind == 0 {
				r.Encoder = nil
			} else if err = r.handle(f); err != nil {
				break
			}
		}
		var wrong *FrameError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// FuzzItem reads any frames as items: an error, or encodings of items that fit.
func FuzzItem(f *testing.F) {
	f.Add(sizeOf(6, 2, 1), bytesOfItem(6), byte(9))
	f.Add(sizeOf(-3, 2, 1), []byte{1}, byte(1))
	f.Fuzz(func(t *testing.T, size, all []byte, each byte) {
		e, r := newEncodes()
		err := r.handle(frame{kind: item, b: size})
		for part := range slices.Chunk(all, max(1, int(each))) {
			if err == nil {
				err = r.handle(frame{kind: pixels, b: part})
			}
		}
		var wrong *FrameError
		if err != nil && !errors.As(err, &wrong) {
			t.Fatal(err)
		}
		if e.n > 1 || e.n == 1 && (e.bound.Patches < 1 || e.bound.Patches > itemShape.Patches) {
			t.Fatalf("%d encodings, of %+v", e.n, e.bound)
		}
	})
}
