//go:build cgo && linux

package models_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// peerRun is what tests/peer/same recorded of llama.cpp.
type peerRun struct {
	prompt int
	tokens []int32     // [prompt + steps]
	rows   [][]float32 // [prompt + steps][vocabulary]
}

func readPeer(path string) (peerRun, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return peerRun{}, err
	}
	if len(b) < 12 {
		return peerRun{}, fmt.Errorf("%s has %d bytes", path, len(b))
	}
	u32 := func(i int) int { return int(binary.LittleEndian.Uint32(b[4*i:])) }
	vocab, prompt, n := u32(0), u32(1), u32(1)+u32(2)
	if vocab < 2 || prompt < 1 || len(b) != 4*(3+n+n*vocab) {
		return peerRun{}, fmt.Errorf("%s has %d bytes for %d rows of %d", path, len(b), n, vocab)
	}
	all := unsafe.Slice((*int32)(unsafe.Pointer(&b[12])), n+n*vocab)
	r := peerRun{prompt: prompt, tokens: all[:n]}
	floats := unsafe.Slice((*float32)(unsafe.Pointer(&b[12+4*n])), n*vocab)
	for i := range n {
		r.rows = append(r.rows, floats[i*vocab:(i+1)*vocab])
	}
	return r, nil
}

// spread returns the standard deviation of a row's logits, root mean square over the rows.
func spread(rows [][]float32) float64 {
	var sum float64
	for _, r := range rows {
		var mean, square float64
		for _, x := range r {
			mean += float64(x) / float64(len(r))
		}
		for _, x := range r {
			square += (float64(x) - mean) * (float64(x) - mean) / float64(len(r))
		}
		sum += square / float64(len(rows))
	}
	return math.Sqrt(sum)
}

// rowsDiffer returns the largest and the root mean square difference of two runs.
func rowsDiffer(a, b [][]float32) (largest, rms float64) {
	n := 0
	for i := range a {
		for j, x := range a[i] {
			d := math.Abs(float64(x) - float64(b[i][j]))
			if !(d <= math.MaxFloat32) {
				return math.Inf(1), math.Inf(1)
			}
			largest, rms, n = max(largest, d), rms+d*d, n+1
		}
	}
	return largest, math.Sqrt(rms / float64(n))
}

// topTwo returns the id of the largest logit and its distance to the next.
func topTwo(row []float32) (id int, gap float64) {
	next := math.Inf(-1)
	for i, x := range row {
		switch {
		case x > row[id] || i == 0:
			if i > 0 {
				next = float64(row[id])
			}
			id = i
		case float64(x) > next:
			next = float64(x)
		}
	}
	return id, float64(row[id]) - next
}

// greedy counts the greedy steps whose gap at the peer is above bound, and those of them that have
// another token.
func (p peerRun) greedy(got [][]float32, bound float64) (sure, other int) {
	for i := p.prompt - 1; i < len(p.rows)-1; i++ {
		want, gap := topTwo(p.rows[i])
		if gap <= bound {
			continue
		}
		sure++
		if id, _ := topTwo(got[i]); id != want {
			other++
		}
	}
	return sure, other
}

// runPeerTokens feeds the tokens of p and returns the logits of each. dtype is that of weights which are
// decoded; Invalid: the model's.
func runPeerTokens(t *testing.T, o backend.Opener, dtype kernels.Format, path string, p peerRun) [][]float32 {
	t.Helper()
	g := enginetest.GoldenOf(p.tokens[:p.prompt], p.tokens[p.prompt:])
	m := openGolden(t, goldenRun{Opener: o, KV: kernels.F32, Block: 16, Chunks: []int{24}, Build: models.Build{Dtype: dtype, Length: max(peerContext, len(p.tokens))}}, g, path)
	var rows [][]float32
	for at, set := 0, 0; at < len(p.tokens); set++ {
		n := 1
		if at < p.prompt {
			n = min(24, p.prompt-at)
		}
		rows = append(rows, m.step(t, p.tokens[at:at+n], at, set%2)...)
		at += n
	}
	return rows
}

// peerContext is the smallest n_ctx of tests/peer/same, by which llama.cpp selects the factors of longrope.
const peerContext = 256

// peerGap is the gap above which tokens count in float32, in standard deviations of a row's logits.
const peerGap = 0.01

// peerBound returns the float32 bound of a family, in standard deviations of a row's logits. llama.cpp takes
// GELU from a table of binary16 numbers, which moves Gemma by a thousandth. Gemma 4 normalizes queries
// and keys without a scale, which enlarges that; its router then selects other experts. Angles at position
// 8000 are right to 5e-4 in float32 (llama4-long).
func peerBound(family string) float64 {
	switch {
	case family == "llama4-long":
		return 2e-3
	case family == "gemma4-moe":
		return math.Inf(1) // the tokens alone
	case family == "gemma": // nothing normalizes what the MLP adds
		return 1e-2
	case strings.HasPrefix(family, "gemma4"):
		return 0.1
	case strings.HasPrefix(family, "gemma"):
		return 3e-3
	}
	return 5e-4
}

// TestSameAsLlamaCPP compares logits and greedy tokens with those that llama.cpp computes of the same
// GGUF file. `make compare-llamacpp` makes the files, names their directory, and prints the table.
//
//   - float32: backend ref against llama.cpp on the same weights, converted to float32. Both compute
//     in float32, so every block's value and every op has to be the same.
//   - file: backend cpu against llama.cpp on the file itself. Both round activations, each in its own
//     way. The bound of a token's gap is twice the largest difference that llama.cpp's rounding makes:
//     its logits of the file against those of the float32 weights.
func TestSameAsLlamaCPP(t *testing.T) {
	dir := os.Getenv("VAPP_SAME_DIR")
	if dir == "" {
		t.Skip("not run: make compare-llamacpp names the files of llama.cpp in VAPP_SAME_DIR")
	}
	paths, err := filepath.Glob(filepath.Join(dir, os.Getenv("VAPP_SAME_ONLY")+"*.logits"))
	must(t, err)
	slices.Sort(paths)
	if len(paths) == 0 {
		t.Fatalf("%s has no .logits files", dir)
	}
	var table []string
	for _, path := range paths {
		name := strings.TrimSuffix(path, ".logits")
		if strings.HasSuffix(name, ".float32") {
			continue
		}
		t.Run(strings.TrimPrefix(filepath.Base(name), "tiny-"), func(t *testing.T) {
			file, err := readPeer(path)
			must(t, err)
			plain, err := readPeer(name + ".float32.logits")
			must(t, err)
			sigma := spread(plain.rows)

			if !slices.Equal(plain.tokens, file.tokens) {
				t.Fatal("the two runs have other tokens")
			}
			exact := runPeerTokens(t, ref.Opener{}, kernels.F32, name+".gguf", plain)
			largest, rms := rowsDiffer(exact, plain.rows)
			sure, other := plain.greedy(exact, peerGap*sigma)
			base := strings.TrimPrefix(filepath.Base(name), "tiny-")
			family, kind, _ := strings.Cut(base, ".")
			if limit := peerBound(family); largest > limit*sigma || other > 0 {
				t.Errorf("float32: largest |Δ| %.2g σ, limit %.2g σ; %d of %d tokens differ", largest/sigma, limit, other, sure)
			}

			own, _ := rowsDiffer(plain.rows, file.rows)
			got := runPeerTokens(t, cpu.Opener{}, kernels.Invalid, name+".gguf", file)
			fileLargest, fileRMS := rowsDiffer(got, file.rows)
			fileSure, fileOther := file.greedy(got, 2*own)
			if fileOther > 0 {
				t.Errorf("file: %d of %d tokens differ although their gap is above %.2g σ", fileOther, fileSure, 2*own/sigma)
			}
			table = append(table, fmt.Sprintf("| %s | %s | %d/%d | %.1e | %.1e | %d/%d | %.2f | %.2g | %.2g |", family, kind,
				sure-other, sure, largest/sigma, rms/sigma, fileSure-fileOther, fileSure, 2*own/sigma, fileLargest/sigma, fileRMS/sigma))
		})
	}
	if out := os.Getenv("VAPP_SAME_TABLE"); out != "" {
		must(t, os.WriteFile(out, []byte(strings.Join(table, "\n")+"\n"), 0o644))
	}
}
