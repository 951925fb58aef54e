package models_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/backendtest"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels"
)

const (
	numericsPage    = "../../docs/numerics.md"
	numericsPreface = `# Numbers: how far logits are from the reference

Every backend and kind of kernels, compared with recorded runs of transformers in float32 (engine/models/testdata): a
prompt and 40 cached steps, token by token, with K and V in float32, on small random checkpoints; in units of σ, the
standard deviation of a row's logits. Other page formats, and SmolLM2, are only checked against the bounds of the tests.
'make docs' generates this page from the tests, which check each row against its bound and against the figures here. It
keeps the rows of kernels that a machine lacks; kernels without rows are only checked against the bounds.

- **max, rms**: of |Δ| over all recorded logits. **flips**: rows with a different largest logit, **at gaps**: the
  largest gap between the reference's first two logits among these rows. **bound**: of max / rms / gaps.
- Activations are float32 on ref and cpu, except with AVX-512 BF16 and AMX (bf16) and with +int8 (cpu.activations). Weights
  are multiplied as stored, except on AMX (below). Activation scales of a config are ignored, except in W8A8 of compressed-tensors, where every
  backend rounds each token to int8.
- On cuda results of products of bf16 inputs are stored in bf16 where a rotation, a norm, a sum or a gate reads them; those of 8-bit inputs
  and the residual stream are float32. Its bounds are those of products in bf16 but for three checkpoints (BoundCUDA in engine/enginetest).
- Where a checkpoint of 8-bit floats says that activations are rounded too (activation_scheme dynamic), backend cuda does so by default, as
  vLLM does; cuda.activations "16bit" turns it off. Backend ref does so only with cuda.activations "fp8", backend cpu never: there
  activations are as above. Recorded runs that round them bound ref and cuda by 0.9 / 0.08 / 0.16, beyond which both are without
  (engine/models/golden_fp8_test.go).
- NVFP4 is multiplied as stored. Codes times the scales of their groups are exact in bf16; the scale of the matrix multiplies
  an output's sum.
- Parts of one matrix that are stored in several formats (as GGUF may store Q, K and V) keep their formats on cpu, and
  become float32 on ref.
- AMX rounds quantized weights to bf16: half away from zero for codes of five bits and more, formats with minima and 8-bit
  floats; to a grid of 1/128 of the power of two below a group's largest weight for Q4_0, Q3_K, IQ1 to IQ4, TQ1_0 and TQ2_0; MXFP4, and 8 bits
  with one scale for each output, are exact. Relative RMS of that rounding, of weights quantized from normal numbers, beside
  what the format loses: half away 0.0017 (Q8_0 loses 0.005, Q6_K 0.019, Q5_0 0.043, Q5_1 and Q5_K 0.038, Q4_1, I4 and Q4_K
  0.078, Q2_K 0.33); grid Q4_0 0.0039 (0.086), IQ4_NL 0.0041 (0.080), Q3_K 0.0032 (0.15). A grid with minima would lose
  0.0057 of Q4_1 and Q4_K, beyond the bounds. amx+outside multiplies exact codes and scales sums of 32.

`
	goldenHead = "| architecture | checkpoint | weights | backend | K/V | max | rms | top-1 agrees | flips | at gaps | bound |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
	mediaText  = "\n## Prompts with images\n\nPrompts of 24 to 128 tokens with images of 1 to 20 tokens, and 16 cached steps, as in the table above: an image first, one in the middle, three with text\n" +
		"between, two that are adjacent, four in a prompt that is longer than a chunk, and a video of two frames before an image. Chunks, whose borders are around each image, change no bit. **tower**: |Δ| of the\n" +
		"encoded rows of the prompt's images, in units of their root mean square. A window of Gemma 4's layers is shorter than the largest image.\n\n"
	mediaHead  = "| architecture | checkpoint | images | backend | K/V | max | rms | top-1 agrees | flips | at gaps | bound | tower max | tower rms |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
	formatText = "\n## Errors of Linear and Experts by weight format\n\nCompared with sums in float64 over the weights' float32 values, in units of the results' root mean square. The bound of rms\n" +
		"is 2e-6 for products of float32, 1e-2 for products of bf16 (AVX-512 BF16, AMX, and formats without their own kernel), and 1.2e-2\n" +
		"for int8 activations (`cpu.activations`), whose kernels give the same bits on all variants.\n\n"
	formatHead = "| weights | op | backend | kernel | rms | max |\n|---|---|---|---|---|---|\n"
)

// figures are the rows that this process measured: the identifying cells → the other cells.
var figures = struct {
	sync.Mutex
	golden, media, formats map[string]string
}{golden: map[string]string{}, media: map[string]string{}, formats: map[string]string{}}

// backendName returns the name of a backend and its kernels.
func backendName(o backend.Opener, s backend.Settings) string {
	if s.Variant == "" {
		return o.Name()
	}
	name := o.Name() + " " + s.Variant
	if s.Activations != "" {
		name += "+" + s.Activations
	}
	return name
}

// keep records the result of a run whose K and V pages keep the stored format.
func keep(t testing.TB, r goldenRun, name string, g *enginetest.Golden, tally *enginetest.GoldenTally, b enginetest.GoldenBound, sigma float64) {
	if r.Build != (goldenRun{}).Build || r.Tensor+r.Pipe > 0 || r.KV != kernels.F32 || !enginetest.Tiny(name) {
		return
	}
	key := fmt.Sprintf("| %s | %s | %s | %s | %v ", g.Facts.Architecture, name, weightsOf(t, checkpointOf(t, name)), backendName(r.Opener, r.Settings), r.KV)
	figures.Lock()
	defer figures.Unlock()
	figures.golden[key] = cells(tally, b, sigma)
}

// cells returns the cells of a run's differences and bound.
func cells(tally *enginetest.GoldenTally, b enginetest.GoldenBound, sigma float64) string {
	return fmt.Sprintf("| %.1e | %.1e | %d of %d | %d | %.1e | %.0e / %.0e / %.0e |", float64(tally.Max)/sigma, tally.RMS()/sigma,
		tally.Rows-tally.Flips, tally.Rows, tally.Flips, float64(tally.FlippedGap)/sigma, b.Max, b.RMS, b.Gap)
}

// keepMedia records the result of a prompt with images whose K and V pages keep the stored format.
func keepMedia(r goldenRun, name, kind string, g *enginetest.Golden, tally *enginetest.GoldenTally, b enginetest.GoldenBound, sigma float64, y *towerTally) {
	if r.KV != kernels.F32 {
		return
	}
	key := fmt.Sprintf("| %s | %s | %s | %s | %v ", g.Facts.Architecture, name, kind, backendName(r.Opener, r.Settings), r.KV)
	figures.Lock()
	defer figures.Unlock()
	figures.media[key] = cells(tally, b, sigma) + fmt.Sprintf(" %.1e | %.1e |", y.worst(), y.rms())
}

// weightsOf lists the formats of a checkpoint's matrices.
func weightsOf(t testing.TB, path string) string {
	ck, err := checkpoint.Open(path)
	must(t, err)
	defer ck.Close()
	var names []string
	for _, x := range ck.Tensors() {
		f := x.Format.String()
		switch x.Format {
		case kernels.U8:
			f = kernels.MXFP4.String()
		case kernels.I32: // four codes each
			f = kernels.I8.String()
		}
		if len(x.Shape) > 1 && !slices.Contains(names, f) {
			names = append(names, f)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// formatErrors measures each weight format on a backend and checks it against a bound.
func formatErrors(t *testing.T, o backend.Opener, s backend.Settings) {
	for _, e := range backendtest.Errors(t, o, s) {
		whole := strings.Contains(e.Kernel, "+int8")
		if s.Activations != "" && !whole {
			continue // already measured without int8 activations
		}
		bound := 2e-6
		switch s.Variant {
		case "amx", "avx512bf16", "dotprod", "i8mm":
			bound = 1e-2
		}
		if whole {
			bound = 1.2e-2
		}
		if !(e.RMS <= bound) {
			t.Errorf("%s of %s on %s: differs by %.2g (rms), the bound is %.2g", e.Op, e.Weights, backendName(o, s), e.RMS, bound)
		}
		figures.Lock()
		figures.formats[fmt.Sprintf("| %s | %s | %s ", e.Weights, e.Op, backendName(o, s))] = fmt.Sprintf("| %s | %.1e | %.1e |", e.Kernel, e.RMS, e.Max)
		figures.Unlock()
	}
}

// TestMain compares docs/numerics.md with the measured figures, or rewrites it.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 {
		if err := numerics(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// numerics compares the page's rows with those of this process. GPU rows are only checked against
// their bounds, because the page may lack them.
func numerics() error {
	if os.Getenv("VAPP_GPU") != "" {
		return nil
	}
	page, err := os.ReadFile(numericsPage)
	if err != nil && !*goldentest.Update {
		return err
	}
	before, after, _ := strings.Cut(string(page), formatText)
	before, images, _ := strings.Cut(before, mediaText)
	golden, media, formats := rowsOf(before, 5), rowsOf(images, 5), rowsOf(after, 3)
	if *goldentest.Update {
		merge(golden, figures.golden)
		merge(media, figures.media)
		merge(formats, figures.formats)
		text := numericsPreface + goldenHead + table(golden) + mediaText + mediaHead + table(media) + formatText + formatHead + table(formats)
		return os.WriteFile(numericsPage, []byte(text), 0o644)
	}
	for _, c := range []struct {
		page, here map[string]string
		backend    int // index of the backend's cell
	}{{golden, figures.golden, 4}, {media, figures.media, 4}, {formats, figures.formats, 3}} {
		for key, got := range c.here {
			if want := c.page[key]; !near(got, want) && hasTable(c.page, key, c.backend) {
				return fmt.Errorf("docs/numerics.md has %q for %s, the test measured %q; run make docs and look at the difference", want, key, got)
			}
		}
	}
	return nil
}

// hasTable reports whether the page has rows of the backend and kernels of key. A machine may have
// kernels that the page does not list; these are only checked against their bounds.
func hasTable(page map[string]string, key string, cell int) bool {
	name := strings.Split(key, "|")[cell]
	for k := range page {
		if strings.Split(k, "|")[cell] == name {
			return true
		}
	}
	return false
}

// rowsOf returns a page's rows by their first cells.
func rowsOf(text string, cells int) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		at := 0
		for range cells {
			at += 1 + max(0, strings.Index(line[at+1:], "|"))
		}
		if !strings.HasPrefix(line, "| architecture") && !strings.HasPrefix(line, "| weights") {
			out[line[:at]] = line[at:]
		}
	}
	return out
}

func merge(into, from map[string]string) {
	for k, v := range from {
		into[k] = v
	}
}

func table(rows map[string]string) string {
	var lines []string
	for k, v := range rows {
		lines = append(lines, k+v+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// near reports whether two rows have the same words, and numbers that differ by at most half of the
// larger one: compilers and machines differ in the last bits.
func near(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		p, errP := strconv.ParseFloat(x[i], 64)
		q, errQ := strconv.ParseFloat(y[i], 64)
		if errP != nil || errQ != nil {
			if x[i] != y[i] {
				return false
			}
			continue
		}
		if math.Abs(p-q) > 0.5*max(p, q) && math.Abs(p-q) > 2e-7 && math.Abs(p-q) > 2*boolTo(p == math.Trunc(p) && q == math.Trunc(q)) {
			return false
		}
	}
	return true
}

// boolTo returns 1 for true. Whole numbers, which count rows, may differ by two.
func boolTo(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// TestNear checks which pairs of rows near accepts.
func TestNear(t *testing.T) {
	const row = "| 2.3e-05 | 2.0e-06 | 140 of 140 | 0 | 0.0e+00 | 1e-04 / 1e-05 / 1e-04 |"
	for other, want := range map[string]bool{
		row: true, strings.Replace(row, "2.3e-05", "2.9e-05", 1): true, strings.Replace(row, "2.3e-05", "6e-05", 1): false,
		strings.Replace(row, "2.0e-06", "1.0e-04", 1): false, strings.Replace(row, "1e-04", "1e-03", 1): false, "": false,
	} {
		if near(row, other) != want {
			t.Errorf("%q and %q: near want %v", row, other, want)
		}
	}
}
