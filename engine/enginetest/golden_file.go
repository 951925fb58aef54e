package enginetest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// GoldenFormat is the version of the files that ReadGolden understands.
const GoldenFormat = 1

// ErrGolden is wrapped by all errors about the content of a golden file.
var ErrGolden = errors.New("bad golden file")

// ReadGolden reads one file of engine/models/testdata/golden.
func ReadGolden(path string) (*Golden, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	g, err := ParseGolden(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; record it again with scripts/golden.sh", path, err)
	}
	return g, nil
}

// ParseGolden decodes a golden file and checks that the shapes of its arrays agree.
func ParseGolden(data []byte) (*Golden, error) {
	f, err := openGolden(data)
	if err != nil {
		return nil, err
	}
	g := &Golden{Facts: f.facts}
	g.InputIDs = f.ids("input_ids", -1)
	g.DecodeIDs = f.ids("decode_ids", -1)
	g.SampleIDs = f.ids("sample_ids", -1)
	g.LastHidden = f.floats("last_hidden", -1)
	g.rows = append(f.rows("", len(g.InputIDs), g.SampleIDs), f.rows("decode_", len(g.DecodeIDs), g.SampleIDs)...)
	if f.err == nil && len(g.InputIDs) == 0 {
		f.fail("input_ids", "is empty")
	}
	f.full(g)
	f.items(g)
	if f.err != nil {
		return nil, f.err
	}
	return g, nil
}

type goldenTensor struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// goldenFile is a safetensors file of I32 and F32 arrays; err is the first fault.
type goldenFile struct {
	facts   GoldenFacts
	tensors map[string]goldenTensor
	data    []byte
	err     error
}

func openGolden(data []byte) (*goldenFile, error) {
	if len(data) < 8 || binary.LittleEndian.Uint64(data) > uint64(len(data)-8) {
		return nil, fmt.Errorf("%w: the header does not fit in %d bytes", ErrGolden, len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal(data[8:8+n], &raw); err != nil {
		return nil, fmt.Errorf("%w: header: %v", ErrGolden, err)
	}
	f := &goldenFile{tensors: map[string]goldenTensor{}, data: data[8+n:]}
	for name, value := range raw {
		if name == "__metadata__" {
			continue
		}
		var t goldenTensor
		if err := json.Unmarshal(value, &t); err != nil {
			return nil, fmt.Errorf("%w: %s: %v", ErrGolden, name, err)
		}
		f.tensors[name] = t
	}
	var meta struct{ Golden string }
	if err := json.Unmarshal(raw["__metadata__"], &meta); err != nil {
		return nil, fmt.Errorf("%w: __metadata__: %v", ErrGolden, err)
	}
	if err := json.Unmarshal([]byte(meta.Golden), &f.facts); err != nil {
		return nil, fmt.Errorf("%w: __metadata__.golden: %v", ErrGolden, err)
	}
	if f.facts.Format != GoldenFormat || f.facts.VocabSize < 2 || f.facts.VocabSize > 1<<24 {
		return nil, fmt.Errorf("%w: format %d with a vocabulary of %d; want format %d", ErrGolden, f.facts.Format, f.facts.VocabSize, GoldenFormat)
	}
	return f, nil
}

func (f *goldenFile) fail(name, why string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s %s", ErrGolden, name, fmt.Sprintf(why, args...))
	}
}

// words returns the 4-byte words of a tensor, which must have the given shape; -1 stands for any
// length. After a fault it returns nil.
func (f *goldenFile) words(name, dtype string, shape ...int) []byte {
	t, ok := f.tensors[name]
	size := int64(4)
	ok = ok && t.DType == dtype && len(t.Shape) == len(shape)
	for i := 0; ok && i < len(shape); i++ {
		n := t.Shape[i]
		ok = n >= 0 && (shape[i] == -1 || n == int64(shape[i])) && (n == 0 || size <= int64(len(f.data))/n)
		size *= n
	}
	from, to := t.Offsets[0], t.Offsets[1]
	if !ok || from < 0 || to > int64(len(f.data)) || from > to || to-from != size {
		f.fail(name, "is %s %v at %v of %d bytes; want %s %v", t.DType, t.Shape, t.Offsets, len(f.data), dtype, shape)
		return nil
	}
	return f.data[from:to]
}

func (f *goldenFile) floats(name string, shape ...int) []float32 {
	raw := f.words(name, "F32", shape...)
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		if x := float64(out[i]); math.IsNaN(x) || math.IsInf(x, 0) {
			f.fail(name, "has %v at %d", x, i)
		}
	}
	return out
}

// ids reads vocabulary ids.
func (f *goldenFile) ids(name string, shape ...int) []int32 {
	out := f.ints(name, shape...)
	for i, id := range out {
		if id < 0 || int(id) >= f.facts.VocabSize {
			f.fail(name, "has %d at %d; the vocabulary has %d", id, i, f.facts.VocabSize)
		}
	}
	return out
}

func (f *goldenFile) ints(name string, shape ...int) []int32 {
	raw := f.words(name, "I32", shape...)
	out := make([]int32, len(raw)/4)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// rows reads the n rows whose arrays have the given prefix.
func (f *goldenFile) rows(prefix string, n int, sample []int32) []GoldenRow {
	ids := f.ids(prefix+"top2_ids", n, 2)
	top := f.floats(prefix+"top2_logits", n, 2)
	logits := f.floats(prefix+"sample_logits", n, len(sample))
	if f.err != nil {
		return nil
	}
	out := make([]GoldenRow, n)
	for i := range out {
		out[i] = GoldenRow{
			TopIDs: [2]int32(ids[2*i:]), Top: [2]float32(top[2*i:]),
			Sample: logits[i*len(sample):][:len(sample):len(sample)],
		}
		if out[i].Gap() < 0 || ids[2*i] == ids[2*i+1] {
			f.fail(prefix+"top2_logits", "are not the two largest at row %d", i)
		}
	}
	return out
}

// full reads the rows whose logits were all recorded, if there are any.
func (f *goldenFile) full(g *Golden) {
	if _, ok := f.tensors["full_positions"]; !ok || f.err != nil {
		return
	}
	positions := f.ints("full_positions", -1)
	v := f.facts.VocabSize
	logits := f.floats("full_logits", len(positions), v)
	for i, p := range positions {
		if p < 0 || int(p) >= len(g.InputIDs) || f.err != nil {
			f.fail("full_positions", "has %d at %d; the prompt has %d", p, i, len(g.InputIDs))
			return
		}
		g.rows[p].Full = logits[i*v:][:v:v]
	}
}

// Recorded returns the names of the golden files of small checkpoints in a directory, sorted.
func Recorded(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "tiny-*.safetensors"))
	if err == nil && files == nil {
		err = fmt.Errorf("no golden file in %s", dir)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".safetensors")
	}
	return files, err
}
