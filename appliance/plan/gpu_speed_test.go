package plan_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/engine/speed"
	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels/cuda/cost"
)

// gpuModels are the models of docs/gpu-speed.md. before are the launches of a layer and of a decode step of one row when
// the first kernel had not changed.
var gpuModels = []struct {
	name, shown, fields string
	before              string
	beforeStep          int
}{
	{"meta-llama/Llama-3.2-1B", "Llama-3.2-1B", "", "12", 204},
	{"meta-llama/Llama-3.1-8B", "Llama-3.1-8B", "", "12", 396},
	{"meta-llama/Llama-3.1-8B", "the same, cuBLASLt", `cuda: linear: "cublaslt"`, "12", 396},
	{"openai/gpt-oss-20b", "gpt-oss-20b", "", "17", 420},
	{"google/gemma-4-26B-A4B-it", "gemma-4-26B fp8", `quantization: "fp8"`, "28", 854},
	{"Qwen/Qwen3.5-27B-FP8", "Qwen3.5-27B-FP8", "", "11–15", 844},
	{"Qwen/Qwen3.5-27B-FP8", "the same, cuBLASLt", `cuda: linear: "cublaslt"`, "11–15", 844},
	{"Qwen/Qwen3.5-27B-FP8", "the same, 16-bit activations", `cuda: activations: "16bit"`, "11–15", 844},
}

const gpuPreface = `# The speed of GPUs, predicted

**No device has run these kernels.** Every time on this page is predicted by ´kernels/cuda/cost´, which ´vapp plan --speed --gpu h200´ uses
too; ´gpu-check´ is what will say where it is wrong. Written by ´go test ./appliance/plan -run TestGPUSpeedPage -update´, which
fails where a launch is added or a count changes.

## What is counted

| figure | from |
|---|---|
| launches | the lists that backend cuda makes of a recorded program: kernels, grids and arguments, for the rows of a step |
| bytes | the launches' operands: weights with their scales, keys and values of the step's sequences, activations |
| operations | the operands' shapes; for the units that multiply in whole tiles |
| instructions | the machine code for sm_90a, disassembled: those of the loop that multiplies or loads most, for each of its operations or bytes, and of the shortest way around it (´kernels/cuda/cost/code.tsv´; other architectures are given the same) |
| phases | the same, where warps meet in the loop that multiplies: the instructions between products, barriers and waits, of a turn and of a tile's begin and end, and the bytes through shared memory |
| rates | ´kernels/cuda/cost/rates.go´, with a source each, fixed before the first kernel changed; latencies and widths within a multiprocessor came later |

A launch takes as long as the slowest of six, and a fixed time: bytes at the memory's rate (activations that fit half of the second cache at
twice that), operations at the rate of the unit that the kernel uses, instructions at 0.7 of the slots, bytes through shared memory at 128 a clock and to it at 64, what a block does
one after the other, each on the busiest multiprocessor, and the block with the most work alone. The fixed time is 1.3 µs between launches of a graph and 1.0 µs until a launch's first bytes are there and its last results are away. From compute
capability 9.0 on a launch behind a kernel is dependent (´kernels/cuda/design.md´): 0.5 µs in place of the 1.3. What a product then prefetches is read within these 0.5 µs and
half of its 1.0; what it reads while the kernel before works comes in addition and is not counted. A driver before CUDA 12.3 has the old times.

**What a block does one after the other** (bound by *waits*) is counted where its warps meet in the loop that multiplies. All warps are at the same step of the machine code, groups of products run one after the other, and
instructions run beside them only if the products were begun before and nothing waits for them. So a turn takes the longest of products, instructions and bytes, and in addition what is beside no products: instructions, barriers (30 clocks) and waits.
Warps that load for others take a part of their slots, and 0.35 µs where they wait for what they load. Once a tile come the instructions around the loop, and a read of 0.35 µs behind another block. Where registers and shared memory are
enough for several blocks, one computes while another waits. Products of ´mma.sync´ run beside other warps' instructions; barriers and a tile's begin and end are added. No rate was changed for this. That warps are in step is an
assumption: FlashAttention-3's times at three lengths follow with it from our own loop within 6 % (below); a later version of it takes a fifth less.

Not in it: conflicts of banks, warpgroups that drift apart between barriers (this makes waits too long), how the sums of splits are joined and gated ones rounded to 8 bits, barriers of attention by ´mma.sync´ and of the delta rule, the second cache's rate for what many blocks read,
clocks that fall under load, routing that is not uniform, and the host, whose work runs beside the step before.

`

// onGPU returns the plan of a model on a GPU of the catalogue, and its predictor.
func onGPU(t *testing.T, model, fields, device string, length int) (*plan.Plan, *engine.Predictor) {
	t.Helper()
	p := made(t, on(t, model, fmt.Sprintf("%s\n\tmaxModelLen: %d\n\tscheduler: {maxNumSeqs: 256, maxNumBatchedTokens: 2304}", fields, length), device))
	gpu, ok := cost.Find(p.Facts.Device)
	if !ok {
		t.Fatalf("%s has no row", device)
	}
	pr, err := engine.NewPredictor(p.Options, p.Account, &speed.Rates{GPU: &gpu})
	if err != nil {
		t.Fatal(err)
	}
	return p, pr
}

// decoding returns n sequences that decode at position 1,023.
func decoding(n int) []speed.Row {
	return slices.Repeat([]speed.Row{{From: 1023, Count: 1, Draw: true}}, n)
}

var prompt2K = []speed.Row{{Count: 2048, Draw: true}}

func predictStep(t *testing.T, pr *engine.Predictor, rows []speed.Row) speed.StepTime {
	t.Helper()
	s, _, err := pr.OnGPU(rows)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// layerLaunches returns the numbers of launches from one layer's attention or recurrent state to the next.
func layerLaunches(t *testing.T, p *plan.Plan, tokens, seqs int) string {
	t.Helper()
	program := p.Account.Reservation.Programs[0]
	list, err := p.Account.Layout.(speed.LaunchLister).Launches(program)
	if err != nil {
		t.Fatal(err)
	}
	launches, err := list(tokens, seqs, seqs)
	if err != nil {
		t.Fatal(err)
	}
	found, last, op := map[int]bool{}, -1, -1
	for i, l := range launches {
		switch program.Ops[l.Op].(type) {
		case backend.Attention, backend.DeltaNet:
			if l.Op != op {
				if op, last = l.Op, max(last, 0); last > 0 {
					found[i-last] = true
				}
				last = i
			}
		}
	}
	all := slices.Sorted(maps.Keys(found))
	if len(all) == 1 {
		return fmt.Sprint(all[0])
	}
	return fmt.Sprintf("%d–%d", all[0], all[len(all)-1])
}

// TestGPUSpeedPage keeps docs/gpu-speed.md: launches, predictions, and what published measurements say of the rates.
func TestGPUSpeedPage(t *testing.T) {
	var b, times strings.Builder
	b.WriteString(strings.ReplaceAll(gpuPreface, "´", "`"))
	b.WriteString("## Launches\n\nOf a layer: from one layer's attention (or delta rule) to the next, one row. *Before* is what it was when no kernel had changed yet. " +
		"Steps draw their tokens: those whose rows are all greedy have three launches fewer.\n\n" +
		"| model | a layer, before | now | a decode step, before | now | 64 rows | prompt of 2,048 |\n|---|---:|---:|---:|---:|---:|---:|\n")
	times.WriteString("\n## Steps on an H200\n\nDecoding at 1,024 positions, and a prompt of 2,048 tokens. The share is of the limit: weights, keys and values read at 0.90 of the memory's peak, or operations of the weights' format at 0.80 of the matrix units', whichever takes longer.\n\n" +
		"| model | step | launches | ms | share of the limit | in launches | longest kernel | its part | bound by |\n|---|---|---:|---:|---:|---:|---|---:|---|\n")
	var long speed.StepTime
	var mixed strings.Builder
	first, prompt := map[string]float64{}, map[string]float64{} // shares of the limit at one row; seconds
	longAttention := 0.0                                        // seconds
	for _, m := range gpuModels {
		p, pr := onGPU(t, m.name, m.fields, "h200", 33280)
		one := predictStep(t, pr, decoding(1))
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %d |\n", m.shown, m.before, layerLaunches(t, p, 1, 1), m.beforeStep, one.Launches,
			predictStep(t, pr, decoding(64)).Launches, predictStep(t, pr, prompt2K).Launches)
		for _, c := range []struct {
			name string
			rows []speed.Row
		}{{"decode 1", decoding(1)}, {"decode 16", decoding(16)}, {"decode 64", decoding(64)}, {"decode 256", decoding(256)}, {"prefill 2K", prompt2K}} {
			s := predictStep(t, pr, c.rows)
			switch c.name {
			case "decode 1":
				first[strings.Replace(m.shown, "the same", path.Base(m.name), 1)] = s.Limit / s.Seconds
			case "prefill 2K":
				prompt[m.name+m.fields] = s.Seconds
			}
			k := s.Kernels[0]
			fmt.Fprintf(&times, "| %s | %s | %d | %.2f | %.2f | %.0f %% | `%s` | %.0f %% | %s |\n",
				m.shown, c.name, s.Launches, 1e3*s.Seconds, s.Limit/s.Seconds, 100*s.Fixed/s.Seconds, k.Kernel, 100*k.Seconds/s.Seconds, k.Bound)
		}
		if !strings.HasPrefix(m.shown, "the same") {
			short := append(decoding(64), speed.Row{Count: 512, Draw: true})
			late := speed.Row{From: 32767, Count: 1, Draw: true}
			without, with := predictStep(t, pr, short), predictStep(t, pr, append(short, late))
			reads := predictStep(t, pr, []speed.Row{late}).Limit - predictStep(t, pr, []speed.Row{{Count: 1, Draw: true}}).Limit
			k := with.Kernels[slices.IndexFunc(with.Kernels, func(k speed.KernelTime) bool { return strings.HasPrefix(k.Kernel, "attention_") })]
			fmt.Fprintf(&mixed, "| %s | %.2f | %.2f | %.2f | %.2f | `%s` | %s |\n", m.shown, 1e3*without.Seconds, 1e3*with.Seconds, 1e3*(with.Seconds-without.Seconds), 1e3*reads, k.Kernel, k.Bound)
		}
		if m.shown == "Llama-3.1-8B" {
			for at := 0; at < 32768; at += 2048 {
				s := predictStep(t, pr, []speed.Row{{From: at, Count: 2048, Draw: true}})
				long.Seconds, long.Limit = long.Seconds+s.Seconds, long.Limit+s.Limit
				for _, k := range s.Kernels {
					if strings.HasPrefix(k.Kernel, "attention_") {
						longAttention += k.Seconds
					}
				}
			}
		}
	}
	b.WriteString(times.String())
	b.WriteString("\n**Mixed steps.** 64 sequences at 1,024 and a prompt of 512, and the same with one sequence more, at 32,768. Its keys and values alone take as long as the last time says.\n\n" +
		"| model | without it, ms | with it, ms | it adds, ms | its reads, ms | longest attention | bound by |\n|---|---:|---:|---:|---:|---|---|\n" + mixed.String())
	fmt.Fprintf(&b, "\n**A long prompt.** Llama-3.1-8B with a prompt of 32,768 in steps of 2,048: %.2f s, of which attention takes %.2f s, and %.2f of the limit. By mma.sync with a mask on every tile it was 3.46 s, 2.82 s and 0.26, without what a block waits for.\n",
		long.Seconds, longAttention, long.Limit/long.Seconds)
	library := map[string]float64{} // the speed of a prompt as a share of that with cuBLASLt's products
	for _, m := range gpuModels {
		if strings.Contains(m.fields, "cublaslt") {
			library[path.Base(m.name)] = prompt[m.name+m.fields] / prompt[m.name]
		}
	}
	b.WriteString("\n**The goals.** Of decoding one row, 0.85 of the limit" + reached(first, 0.85) + " Of a prompt, 0.7 of the speed with cuBLASLt's products" + reached(library, 0.7) + "\n")
	b.WriteString("\n## Llama-3.1-8B on other GPUs\n\nNo figure: the memory does not hold that many keys.\n\n| GPU | decode 1, ms | share | decode 64, ms | share | prefill 2K, ms | share |\n|---|---:|---:|---:|---:|---:|---:|\n")
	for _, device := range []string{"a100-80g", "l4", "l40s", "rtx-4090", "h100", "h200", "b200"} {
		p, pr := onGPU(t, "meta-llama/Llama-3.1-8B", "", device, 2304)
		fmt.Fprintf(&b, "| %s |", p.Facts.Device)
		for _, rows := range [][]speed.Row{decoding(1), decoding(64), prompt2K} {
			if len(rows) > 1 && p.Capacity.Tokens < int64(1024*len(rows)) {
				b.WriteString(" – | – |")
				continue
			}
			s := predictStep(t, pr, rows)
			fmt.Fprintf(&b, " %.2f | %.2f |", 1e3*s.Seconds, s.Limit/s.Seconds)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## Rates\n\nPeaks of memory and of dense products in 16 bits; what is reached of them stands in `kernels/cuda/cost/rates.go` with its sources.\n\n| GPU | multiprocessors | clock, GHz | memory, GB/s | 16 bits, TFLOP/s | 8 bits | mma.sync reaches | from |\n|---|---:|---:|---:|---:|---:|---:|---|\n")
	for _, g := range cost.GPUs() {
		fmt.Fprintf(&b, "| %s | %d | %.2f | %.0f | %.0f | %.0f | %.2f | %s |\n", g.Name, g.SMs, g.Clock/1e9, g.Bandwidth/1e9, g.BF16/1e12, g.FP8/1e12, g.Shares.Sync, g.Source)
	}
	b.WriteString(publishedTable(t))
	goldentest.ComparePage(t, "../..", "gpu-speed.md", b.String())
}

// reached says which shares reach a goal and which do not.
func reached(shares map[string]float64, goal float64) string {
	var yes, no []string
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		if one := fmt.Sprintf("%s (%.2f)", name, shares[name]); shares[name] >= goal {
			yes = append(yes, one)
		} else {
			no = append(no, one)
		}
	}
	if len(no) == 0 {
		no = []string{"none"}
	}
	return fmt.Sprintf(": reached by %s; missed by %s.", strings.Join(yes, "; "), strings.Join(no, "; "))
}

// publishedTable compares the rates with measurements of other engines.
func publishedTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString("\n## Measurements of others\n\nWhat the rates give for work that others measured: the longer of reading and multiplying, for attention the steps of our own loop without its loads, and for whole steps 2.3 µs for each of 394 launches (70B: 970), which is what vapp would make and not what those engines state. " +
		"An error below 0 says that the measured kernel took longer than predicted: these rates are near what the best kernels reach, and others are slower.\n\n| measurement | GPU | predicted, ms | measured, ms | error | source |\n|---|---|---:|---:|---:|---|\n")
	var errs []float64
	for _, m := range cost.Measured() {
		s, ok := m.Predict()
		if !ok {
			t.Fatalf("%s: no row of %s", m.What, m.GPU)
		}
		e := s/m.Seconds - 1
		errs = append(errs, max(e, -e))
		fmt.Fprintf(&b, "| %s | %s | %.4g | %.4g | %+.0f %% | %s |\n", m.What, m.GPU, 1e3*s, 1e3*m.Seconds, 100*e, m.Source)
	}
	slices.Sort(errs)
	fmt.Fprintf(&b, "\nOf %d the median error is %.0f %%, the worst %.0f %%. H800 has H100's memory and matrix units. Where a rate and not a time was published, the work is what takes a second at that rate.\n", len(errs), 100*errs[len(errs)/2], 100*errs[len(errs)-1])
	return b.String()
}

// TestGPURates: the peaks of the cost model are those of the catalogue of devices, and clocks agree with the matrix rate.
func TestGPURates(t *testing.T) {
	for _, g := range cost.GPUs() {
		d, err := devices.Find(strings.ToLower(g.Name))
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
			continue
		}
		if d.SMs != g.SMs || d.Capability != g.Capability || d.Bandwidth != g.Bandwidth || d.FP16 != g.BF16 || d.FP8 != g.FP8 || float64(d.L2Bytes) != g.L2 {
			t.Errorf("%+v, catalogued %+v", g, d)
		}
		each := g.BF16 / (float64(g.SMs) * g.Clock) // operations a clock
		if n := float64(int(each/512+0.5) * 512); each < 0.9*n || each > 1.1*n {
			t.Errorf("%s: %.0f operations a clock and multiprocessor", g.Name, each)
		}
	}
}

// TestGPUSpeed: a plan for a GPU has predicted speeds and steps, marked as such; a GPU without a row is refused.
func TestGPUSpeed(t *testing.T) {
	p, err := made(t, on(t, "meta-llama/Llama-3.2-1B", "maxModelLen: 4096", "h200")).WithSpeed()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(p.Speed.String()), " ")
	for _, want := range []string{"± 50 %", "predicted, not measured: published rates of NVIDIA H200", "no report of gpu-check", "decode 1 ", "of the limit", "launches take", "prefill 2,048 "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if s := p.Speed; s.Basis != "predicted" || len(s.Kernels) > 0 || len(s.Steps) != 5 || s.Steps[0].Launches < 100 || s.Loads[0].Decode < 100 {
		t.Errorf("%+v", s)
	}
	_, err = made(t, on(t, "meta-llama/Llama-3.2-1B", "maxModelLen: 4096", "v100-32g")).WithSpeed()
	if err == nil || !strings.Contains(err.Error(), "Tesla V100-SXM2-32GB: the table of GPUs (docs/gpu-speed.md) has no row of it; leave out --speed, or") {
		t.Error(err)
	}
}
