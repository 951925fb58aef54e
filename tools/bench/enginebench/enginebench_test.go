//go:build cgo && linux

package enginebench

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vapp.dev/appliance"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// machine has backend cpu alone.
var machine = appliance.Machine{Backends: []backend.Opener{cpu.Opener{}}}

// TestBenchProfiles plans the profiles of make bench: models of 1 to 2 GB.
func TestBenchProfiles(t *testing.T) {
	paths, err := filepath.Glob("../../../tests/bench/*.cue")
	if err != nil || len(paths) < 7 {
		t.Fatalf("%d profiles, %v", len(paths), err)
	}
	for _, path := range paths {
		p, err := Options{Prompt: 256, Output: 48, Streams: 16}.prepare(path, machine)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if b := p.Plan.Account.Reservation.Arenas[backend.Weights]; b < 1e9 || b > 2.1e9 {
			t.Errorf("%s: %d bytes of weights", path, b)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBenchLayers plans a model cut to two of its eight layers.
func TestBenchLayers(t *testing.T) {
	bytes := map[int]int64{}
	for _, n := range []int{0, 2} {
		p, err := Options{Prompt: 16, Output: 16, Streams: 2, Layers: n}.prepare("../../../tests/bench/llama.cue", machine)
		if err != nil {
			t.Fatal(err)
		}
		bytes[n] = p.Plan.Account.Reservation.Arenas[backend.Weights]
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	const layer = 2 * (2048*(2048+2*512+2048) + 3*2048*8192)
	if d := bytes[0] - bytes[2] - 6*layer; d < -4<<20 || d > 4<<20 {
		t.Errorf("two layers take %d bytes, all %d", bytes[2], bytes[0])
	}
	if _, err := (Options{Prompt: 16, Output: 16, Streams: 2, Layers: 9}).prepare("../../../tests/bench/llama.cue", machine); err == nil {
		t.Error("nine of eight layers were planned")
	}
}

// TestBenchCost checks the cost of a model with a plain weight, a head that is also the embedding,
// two stacks of experts, a sliding window and a state against a count by hand.
func TestBenchCost(t *testing.T) {
	weights := []backend.WeightSpec{
		{Rows: 10, Cols: 10, Use: backend.Multiply, Group: "attention"},
		{Rows: 100, Cols: 10, Use: backend.Multiply | backend.Lookup, Group: "embedding"},
		{Rows: 20, Cols: 10, Use: backend.Multiply, Experts: 8}, {Rows: 10, Cols: 10, Use: backend.Multiply, Experts: 8},
		{Rows: 1, Cols: 10, Use: backend.Vector},
	}
	r := backend.Reservation{
		Weights: weights, Packed: []backend.Packed{{Bytes: 200}, {Bytes: 2000}, {Bytes: 1600}, {Bytes: 800}, {Bytes: 40}},
		Programs: []*backend.Program{{Ops: []backend.Op{backend.Experts{GateUp: 2, Down: 3, Top: 2}}}},
		Classes: []backend.KVClass{
			{Format: kernels.F16, Layers: 2, KVHeads: 3, HeadDim: 8},
			{Format: kernels.F16, Layers: 1, KVHeads: 1, HeadDim: 8, KeyDim: 4, Window: 5},
			{Layers: 1, State: &backend.StateShape{ConvRows: 1, ConvCols: 4, ConvFormat: kernels.F32, Heads: 1, Rows: 2, Cols: 2}},
		},
	}
	c := costOf(r, 20)
	if got, want := c.prompt, 2.0*(100+8*300*2/8); got != want {
		t.Errorf("a prompt token takes %v operations, want %v", got, want)
	}
	if got, want := c.decode, c.prompt+2*1000; got != want {
		t.Errorf("a token takes %v operations, want %v", got, want)
	}
	perSeq := 2*20*3*16*2.0 + 5*12*2 + 2*(16+16)
	if got, want := c.step(1), 2200+2400*2/8+perSeq; got != want {
		t.Errorf("a step of one reads %v, want %v", got, want)
	}
	if got, want := c.step(2), 2200+2400*(1-0.75*0.75)+2*perSeq; math.Abs(got-want) > 1e-9 {
		t.Errorf("a step of two reads %v, want %v", got, want)
	}
}

// TestBenchCut reduces the text part of a config, and its lists with an entry per layer.
func TestBenchCut(t *testing.T) {
	raw := `{"architectures":["X"],"text_config":{"num_hidden_layers":4,"layer_types":["a","b","c","d"],"hidden_size":8},"vision_config":{"num_hidden_layers":9}}`
	path, err := cut(checkpoint.Config{Dialect: "huggingface", Raw: []byte(raw), NumLayers: 4}, 3, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type part struct {
		Layers int      `json:"num_hidden_layers"`
		Types  []string `json:"layer_types"`
		Hidden int      `json:"hidden_size"`
	}
	var got struct{ Text_config, Vision_config part }
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if x := got.Text_config; x.Layers != 3 || len(x.Types) != 3 || x.Types[2] != "c" || x.Hidden != 8 || got.Vision_config.Layers != 9 {
		t.Errorf("cut to %s", data)
	}
	for _, c := range []checkpoint.Config{{Dialect: "gguf", NumLayers: 4}, {Dialect: "huggingface", Raw: []byte(raw), NumLayers: 2}} {
		if _, err := cut(c, 3, t.TempDir()); err == nil {
			t.Errorf("%+v was cut", c)
		}
	}
}

// TestBenchWork parses rows and checks the capacity that they need together.
func TestBenchWork(t *testing.T) {
	rows, err := Options{Work: []string{"512+1", "16x128+64", "1+128"}}.rows()
	if want := []Work{{1, 512, 1}, {16, 128, 64}, {1, 1, 128}}; err != nil || !slices.Equal(rows, want) {
		t.Errorf("%v, %v, want %v", rows, err, want)
	}
	if length, streams, tokens := capacityFor(rows); length != 528 || streams != 16 || tokens != 16*192 {
		t.Errorf("capacity for sequences of %d tokens, %d sequences, %d tokens at once", length, streams, tokens)
	}
	for _, s := range []string{"", "512", "x1+1", "0x1+1", "1x0+1", "1+0", "-1+1", "99999999999999999999+1", "1x1+1x"} {
		if _, err := parseWork(s); err == nil {
			t.Errorf("--work %q was accepted", s)
		}
	}
}

// TestBenchRates checks the rates of two streams of four tokens against rates computed by
// hand. One stream has two tokens when the other gets its first.
func TestBenchRates(t *testing.T) {
	start := time.Unix(100, 0)
	at := func(seconds ...int) (out []time.Time) {
		for _, s := range seconds {
			out = append(out, start.Add(time.Duration(s)*time.Second))
		}
		return out
	}
	row := Row{Work: Work{Streams: 2, Prompt: 10, Output: 4}}
	row.add(start, [][]time.Time{at(1, 2, 3, 4), at(2, 3, 4, 7)})
	if p, d, all := row.Prefill[0], row.Decode[0], row.Total[0]; p != 20.0/2 || d != 5.0/5 || all != 28.0/7 {
		t.Errorf("prefill %v, decode %v, total %v", p, d, all)
	}
	one := Row{Work: Work{Streams: 1, Prompt: 10, Output: 1}}
	one.add(start, [][]time.Time{at(5)})
	if len(one.Decode) != 0 || one.Prefill[0] != 2 || one.Total[0] != 11.0/5 {
		t.Errorf("one token alone: %+v", one)
	}
}

// TestBenchReport prints a report as a table, and as JSON that decodes to the same report.
func TestBenchReport(t *testing.T) {
	r := Report{
		Profile: "p", Weights: "random weights", Device: "cpu", Variant: "avx512", Threads: "2", Load: 1.25,
		Limits: Limits{Read: 40e9, F32: 200e9, BF16: 400e9, Int8: 800e9}, Matrix: 400e9,
		Rows: []Row{
			{Work: Work{1, 512, 1}, Prefill: []float64{90, 110, 100}, Total: []float64{90, 110, 100}, PromptOp: 2e9},
			{Work: Work{16, 128, 64}, Prefill: []float64{80}, Decode: []float64{160}, Total: []float64{100}, StepRead: 2e9, PromptOp: 2e9, DecodeOp: 2e9},
		},
		Memory: Memory{Arenas: 1 << 30, Taken: 1 << 30, Planned: 2 << 30, Unmeasured: "no such file", Items: []LedgerItem{{"weights", 1 << 30, "exact"}}},
	}
	var table, encoded bytes.Buffer
	if err := errors.Join(r.Text(&table), r.JSON(&encoded)); err != nil {
		t.Fatal(err)
	}
	const want = `p, random weights, on cpu, variant avx512, threads 2, loaded in 1.2 s
                     work      tokens/s  read a step  of bandwidth  of matrix rate
  prefill 512, one stream  100.0 ± 10.0                                       50 %
  prefill 128, 16 streams          80.0                                       40 %
    decode 64, 16 streams         160.0      2.00 GB          50 %            80 %
  both 128+64, 16 streams         100.0                                           
limits measured in this run: read bandwidth 40.0 GB/s, matrix rate 200 GFLOP/s in f32, 400 in bf16, 800 in int8
memory: arenas 1.00 GiB planned, 1.00 GiB taken, difference=0; peak not measured: no such file

`
	if diff := cmp.Diff(want, table.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var back Report
	if err := json.Unmarshal(encoded.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back, cmp.AllowUnexported(Row{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
