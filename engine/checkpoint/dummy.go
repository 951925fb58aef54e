package checkpoint

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"strings"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// dummyDeviation is the standard deviation of dummy weights, that of freshly initialized models
// (initializer_range).
const dummyDeviation = 0.02

// Dummy returns a checkpoint with dummy weights: pseudorandom numbers that depend only on seed,
// tensor name and row. Norm weights are 1, orders of inputs are ascending, scales match the weights they multiply, all other
// numbers have mean 0. Of layout it uses names, shapes and formats. The tokenizer is
// SyntheticTokenizer's.
func Dummy(cfg Config, layout []TensorInfo, seed uint64) (*Checkpoint, error) {
	c := &Checkpoint{path: "dummy weights", cfg: cfg}
	c.text = syntheticText(cfg)
	return c.WithDummyWeights(layout, seed)
}

// WithDummyWeights returns a checkpoint with c's config, tokenizer and templates, and Dummy's
// weights. If c has no tokenizer.json it gets the synthetic one. c may be closed afterwards, unless
// it is a GGUF file.
func (c *Checkpoint) WithDummyWeights(layout []TensorInfo, seed uint64) (*Checkpoint, error) {
	d := &Checkpoint{path: c.path, cfg: c.cfg, text: c.text, byName: map[string]int{}, dummy: &dummy{seed: seed, fillers: fillers()}}
	real := c.text.tokenizer
	d.text.tokenizer = func() ([]byte, error) {
		b, err := real()
		if errors.Is(err, fs.ErrNotExist) {
			return SyntheticTokenizer(c.cfg)
		}
		return b, err
	}
	if d.text.templates["default"] == "" {
		synthetic := syntheticText(c.cfg)
		d.text.templates = synthetic.templates
	}
	for _, t := range layout {
		bytes, wrong := measure(t.Format, t.Shape)
		if wrong == "" && d.dummy.fillers[t.Format] == nil {
			wrong = "has format " + t.Format.String() + ", for which there are no dummy weights"
		}
		if wrong != "" {
			return nil, fault(c.path, t.Name, "%s", wrong)
		}
		if err := d.add(TensorInfo{Name: t.Name, Shape: t.Shape, Format: t.Format, Bytes: bytes}); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// dummy generates weights.
type dummy struct {
	seed    uint64
	fillers map[kernels.Format]func(at uint64, row []byte)
}

// fill writes rows of t, starting at row0, to dst.
func (d *dummy) fill(t TensorInfo, row0, rows int, dst []byte) {
	if isNorm(t) {
		ones := make([]float32, t.RowElements())
		for i := range ones {
			ones[i] = 1
		}
		switch t.Format {
		case kernels.F32, kernels.F16, kernels.BF16:
			for range rows {
				ref.Quantize(t.Format, ones, dst)
			}
			return
		}
	}
	if isOrder(t) {
		for i := range int(t.RowElements()) {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(float32(i)))
		}
		return
	}
	key, size := d.key(t.Name), t.RowBytes()
	fill := d.fillers[t.Format]
	for r := range rows {
		start, row := kernels.Mix(key+uint64(row0+r)*kernels.Golden), dst[int64(r)*size:int64(r+1)*size]
		if !fillScales(t, start, row) {
			fill(start, row)
		}
	}
}

// isNorm reports whether t holds norm weights.
func isNorm(t TensorInfo) bool {
	return len(t.Shape) == 1 && strings.HasSuffix(t.Name, "norm.weight")
}

// key returns the counter at which a tensor's first row starts.
func (d *dummy) key(name string) uint64 {
	key := kernels.Mix(d.seed + kernels.Golden)
	for _, b := range []byte(name) {
		key = kernels.Mix(key ^ uint64(b))
	}
	return key
}

// fillers returns, for each format, the function that fills a row from a counter.
func fillers() map[kernels.Format]func(at uint64, row []byte) {
	levels := dummyLevels()
	words, halves, bhalves := wordTable(levels), halfTable(levels, ref.FloatToHalf), halfTable(levels, ref.FloatToBFloat)
	m := map[kernels.Format]func(at uint64, row []byte){
		kernels.F32:  func(at uint64, row []byte) { fillWords(at, row, words) },
		kernels.F16:  func(at uint64, row []byte) { fillHalves(at, row, halves) },
		kernels.BF16: func(at uint64, row []byte) { fillHalves(at, row, bhalves) },
	}
	for _, f := range []kernels.Format{kernels.U8, kernels.I8, kernels.I32, kernels.I64} {
		m[f] = fillRandom
	}
	for _, f := range []kernels.Format{kernels.F8E4M3, kernels.F8E5M2} {
		table := byteTable(levels, f)
		m[f] = func(at uint64, row []byte) { fillBytes(at, row, table) }
	}
	for _, f := range blockFormats {
		_, size := f.Block()
		scale := blockScale(f)
		m[f] = func(at uint64, row []byte) { fillBlocks(at, row, size, scale) }
	}
	return m
}

// dummyLevels are equidistant values in [−√3σ, √3σ]: a uniform distribution with standard deviation
// σ.
func dummyLevels() (levels [256]float32) {
	for i := range levels {
		levels[i] = (float32(i) - 127.5) / 127.5 * dummyDeviation * 1.7320508
	}
	return levels
}

func wordTable(levels [256]float32) *[256]uint32 {
	var t [256]uint32
	for i, x := range levels {
		t[i] = math.Float32bits(x)
	}
	return &t
}

func halfTable(levels [256]float32, round func(float32) uint16) *[256]uint16 {
	var t [256]uint16
	for i, x := range levels {
		t[i] = round(x)
	}
	return &t
}

// fillWords gives each 4-byte element the level of one random byte.
func fillWords(at uint64, row []byte, t *[256]uint32) {
	for len(row) > 0 {
		r := kernels.Mix(at)
		at += kernels.Golden
		for range min(8, len(row)/4) {
			binary.LittleEndian.PutUint32(row, t[byte(r)])
			row, r = row[4:], r>>8
		}
	}
}

// fillHalves is fillWords for 2-byte elements.
func fillHalves(at uint64, row []byte, t *[256]uint16) {
	for len(row) >= 16 {
		r := kernels.Mix(at)
		at += kernels.Golden
		lo := uint64(t[byte(r)]) | uint64(t[byte(r>>8)])<<16 | uint64(t[byte(r>>16)])<<32 | uint64(t[byte(r>>24)])<<48
		hi := uint64(t[byte(r>>32)]) | uint64(t[byte(r>>40)])<<16 | uint64(t[byte(r>>48)])<<32 | uint64(t[byte(r>>56)])<<48
		binary.LittleEndian.PutUint64(row, lo)
		binary.LittleEndian.PutUint64(row[8:], hi)
		row = row[16:]
	}
	for r := kernels.Mix(at); len(row) > 0; row, r = row[2:], r>>8 {
		binary.LittleEndian.PutUint16(row, t[byte(r)])
	}
}
