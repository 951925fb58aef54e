package ref

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"vapp.dev/kernels"
)

// recorded is one format of testdata/gguf_blocks.json.gz.
type recorded struct{ Blocks, Digests, Input, Stored string }

func readRecorded(t *testing.T) map[kernels.Format]recorded {
	t.Helper()
	f, err := os.Open("testdata/gguf_blocks.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var byName map[string]recorded
	if err := json.NewDecoder(raw).Decode(&byName); err != nil {
		t.Fatal(err)
	}
	out := map[kernels.Format]recorded{}
	for name, r := range byName {
		f, ok := kernels.Parse(strings.ToLower(name))
		if !ok {
			t.Fatalf("no format %s", name)
		}
		out[f] = r
	}
	return out
}

func decode(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// TestDequantizeRecorded compares with digests of what the gguf package computes, bit for bit but the sign of zero.
func TestDequantizeRecorded(t *testing.T) {
	seen := 0
	for f, r := range readRecorded(t) {
		if r.Blocks == "" {
			continue
		}
		seen++
		blocks, want := decode(t, r.Blocks), decode(t, r.Digests)
		elems, size := f.Block()
		if len(want) != len(blocks)/size*8 || len(want) == 0 {
			t.Fatalf("%v: %d bytes of digests for %d blocks", f, len(want), len(blocks)/size)
		}
		for i := range len(blocks) / size {
			got, raw := make([]float32, elems), []byte(nil)
			Dequantize(f, blocks[i*size:(i+1)*size], got)
			for _, v := range got {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v+0))
			}
			if d := sha256.Sum256(raw); string(d[:8]) != string(want[8*i:8*i+8]) {
				t.Errorf("%v block %d is %v, and not what gguf computes", f, i, got)
			}
		}
	}
	if seen != 21 {
		t.Errorf("%d block formats recorded, want 21", seen)
	}
}

// TestQuantizeRecorded compares with the gguf package, byte for byte.
func TestQuantizeRecorded(t *testing.T) {
	seen := 0
	for f, r := range readRecorded(t) {
		if r.Input == "" {
			continue
		}
		seen++
		x, want := floats(decode(t, r.Input)), decode(t, r.Stored)
		got := make([]byte, len(want))
		Quantize(f, x, got)
		for i := range want {
			if got[i] != want[i] {
				_, size := f.Block()
				t.Errorf("%v block %d byte %d is %#x, want %#x", f, i/size, i%size, got[i], want[i])
				break
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d formats recorded, want 4", seen)
	}
}

// TestPlainRoundTrip: Dequantize reads back the values that Quantize stores.
func TestPlainRoundTrip(t *testing.T) {
	x := []float32{0, 1, -1.5, 3.140625, 1 << 15, -0x1p-14, float32(math.Inf(1))}
	for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		b := make([]byte, f.Bytes(int64(len(x))))
		Quantize(f, x, b)
		got := make([]float32, len(x))
		Dequantize(f, b, got)
		for i := range x {
			if got[i] != x[i] {
				t.Errorf("%v: %v came back as %v", f, x[i], got[i])
			}
		}
	}
	got := make([]float32, 2)
	Dequantize(kernels.I32, []byte{0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0}, got)
	if got[0] != -1 || got[1] != 2 {
		t.Errorf("i32 read as %v", got)
	}
	Dequantize(kernels.U32, []byte{0, 0, 0, 0x80, 2, 0, 0, 0}, got)
	if got[0] != 1<<31 || got[1] != 2 {
		t.Errorf("u32 read as %v", got)
	}
}

func TestWrongLengthsPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"short source":      func() { Dequantize(kernels.Q8_0, make([]byte, 33), make([]float32, 32)) },
		"part of a block":   func() { Dequantize(kernels.Q8_0, make([]byte, 34), make([]float32, 31)) },
		"no format":         func() { Dequantize(kernels.Invalid, nil, make([]float32, 1)) },
		"short destination": func() { Quantize(kernels.F32, make([]float32, 2), make([]byte, 7)) },
		"no encoder":        func() { Quantize(kernels.Q4_K, make([]float32, 256), make([]byte, 144)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
