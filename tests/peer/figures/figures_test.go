package figures_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vapp.dev/internal/goldentest"
	"vapp.dev/tests/peer/figures"
)

const llamaBench = `[
 {"n_prompt": 32, "n_gen": 0, "avg_ts": 50.5}, {"n_prompt": 512, "n_gen": 0, "avg_ts": 150.25},
 {"n_prompt": 2048, "n_gen": 0, "avg_ts": 140}, {"n_prompt": 0, "n_gen": 128, "avg_ts": 12.5}]`

const engine = `{"load_seconds": 0.4, "limits": {"read": 40e9, "f32": 200e9, "bf16": 400e9}, "matrix_rate": 200e9, "rows": [
 {"streams": 1, "prompt": 512, "output": 1, "prefill": [100], "total": [99], "step_bytes": 2e9, "prompt_operations": 2e9, "steps": [
  {"kind": "prefill", "steps": 2, "ops": [{"op": "linear", "calls": 9, "us": 900, "share": 0.9, "threads": 1.5}, {"op": "all", "calls": 10, "us": 1000, "share": 1}]}]},
 {"streams": 1, "prompt": 1, "output": 128, "prefill": [9], "decode": [18], "total": [17], "step_bytes": 2e9, "prompt_operations": 2e9},
 {"streams": 16, "prompt": 128, "output": 64, "prefill": [90], "decode": [80], "total": [85], "step_bytes": 3e9, "prompt_operations": 2e9, "decode_operations": 4e9, "steps": [
  {"kind": "decode", "steps": 60, "ops": [{"op": "all", "calls": 10, "us": 1000, "share": 1}]}]}],
 "memory": {"arenas_planned": 100, "arenas_taken": 100, "planned": 3000, "peak": 2000,
  "items": [{"item": "kv", "bytes": 300, "basis": "exact"}, {"item": "mapped files", "bytes": 9, "basis": "apart"}]}}`

// profiled holds the times of ops in the steps of engine.
var profiled = []figures.Step{
	{
		Work: figures.Work{Streams: 1, Prompt: 512, Output: 1}, Kind: "prefill", Limit: 1e6 * 256 * 2e9 / 400e9,
		Ops: []figures.Op{{Op: "linear", Calls: 9, Micros: 900, Share: 0.9, Threads: 1.5}, {Op: "all", Calls: 10, Micros: 1000, Share: 1}},
	},
	{
		Work: figures.Work{Streams: 16, Prompt: 128, Output: 64}, Kind: "decode", Limit: 1e6 * 16 * 4e9 / 400e9,
		Ops: []figures.Op{{Op: "all", Calls: 10, Micros: 1000, Share: 1}},
	},
}

const served = `{"completed": 16, "failed": 0, "total_token_throughput": 111.5, "p99_ttft_ms": 2500, "median_ttft_ms": 1500, "p99_itl_ms": 90, "median_itl_ms": 60}`

const streaming = `=== RUN   TestStreamingCost/default_model
    streams_test.go:83: 900 steps of 64.0 tokens in 20.0 s, 22.22 ms each
        compute   38.20 s   96.5 %   663.19 µs a token
        engine     0.50 s    1.3 %     8.68 µs a token
        server     0.89 s    2.2 %    15.45 µs a token
          sockets        0.30 s    0.8 %     5.21 µs a token
`

// TestRead parses the output of each tool.
func TestRead(t *testing.T) {
	engineOnly := func(out []byte) (figures.Values, error) {
		v, steps, err := figures.ReadEngine(out, 0)
		if diff := cmp.Diff(profiled, steps); err == nil && diff != "" {
			t.Errorf("steps (-want +got)\n%s", diff)
		}
		return v, err
	}
	for _, c := range []struct {
		name, out string
		read      func([]byte) (figures.Values, error)
		want      figures.Values
	}{
		{"llama-bench", llamaBench, figures.ReadLlamaBench, figures.Values{figures.Prefill512: 150.25, figures.Prefill2048: 140, figures.Decode: 12.5}},
		{"batched", "loading\n{\"pl\": 8, \"speed\": 1}\n{\"pl\": 16, \"speed\": 66.5}\n", figures.ReadBatchedBench, figures.Values{figures.Sixteen: 66.5}},
		{"engine", engine, engineOnly, figures.Values{
			figures.Bandwidth: 40e9, figures.RateF32: 200e9, figures.RateBF16: 400e9, figures.Peak: 2000, figures.Planned: 3000, figures.Arenas: 0,
			figures.Start: 0.4, figures.Prefill512: 100, figures.PromptOps: 2e9, figures.MatrixLimit: 200, figures.Decode: 18, figures.DecodeLimit: 20, figures.Sixteen: 85,
			figures.SixteenLimit: 16 * 192 / (2048*0.005 + 64*0.16), figures.FirstLimit: 10240, figures.Item + "kv": 300,
		}},
		{"serve", served, figures.ReadServe, figures.Values{figures.Served: 111.5, figures.TTFT: 2500, figures.MedianTTFT: 1500, figures.ITL: 90, figures.MedianITL: 60}},
		{"limits", `{"read bandwidth": 4e10, "bf16 rate": 4e11, "bf16 tile rate": 7e12, "threads": 2}`, figures.ReadLimits, figures.Values{
			figures.Bandwidth: 4e10, figures.RateBF16: 7e12, figures.TilesBF16: 7e12, "threads": 2,
		}},
		{"torch", `{"prefill 512": 300.5, "decode": 9}`, figures.ReadTorch, figures.Values{figures.Prefill512: 300.5, figures.Decode: 9}},
		{"streams", streaming, figures.ReadStreams, figures.Values{figures.ServerShare: 2.2, figures.ServerPart + "sockets": 0.8}},
	} {
		got, err := c.read([]byte(c.out))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, diff)
		}
		for _, bad := range []string{"", "{}", "[]", "not JSON", c.out[:len(c.out)/3]} {
			if v, err := c.read([]byte(bad)); err == nil && len(v) == len(c.want) {
				t.Errorf("%s: %q was taken: %v", c.name, bad, v)
			}
		}
	}
	if _, err := figures.ReadServe([]byte(strings.Replace(served, `"failed": 0`, `"failed": 1`, 1))); err == nil {
		t.Error("a run with a failed request was taken")
	}
}

// TestReadRate checks that the limit of int8 uses the higher of two rates, because one may have been
// measured while another program was running.
func TestReadRate(t *testing.T) {
	saw := strings.Replace(engine, `"bf16": 400e9}`, `"bf16": 400e9, "int8": 900e9}`, 1)
	for rate, want := range map[float64]float64{0: 200, 450e9: 450, 1000e9: 500} {
		v, _, err := figures.ReadEngine([]byte(saw), rate)
		if err != nil || v[figures.MatrixLimit] != want {
			t.Errorf("at a rate of %g the limit is %v tokens/s, %v; want %v", rate, v[figures.MatrixLimit], err, want)
		}
	}
}

// turns are of a machine that slows to half its speed and recovers.
var turns = []figures.Turn{
	{Side: figures.Llama, Decode: 100, Before: 40e9, After: 40e9},
	{Side: figures.VappInt8, Decode: 150, StepBytes: 1e8, Before: 40e9, After: 20e9},
	{Side: figures.LlamaBest, Decode: 75, Before: 20e9, After: 20e9},
	{Side: figures.Llama, Decode: 50, Before: 20e9, After: 20e9},
	{Side: figures.VappInt8, Decode: 90, StepBytes: 1e8, Before: 20e9, After: 40e9},
	{Side: figures.Llama, Decode: 100, Before: 40e9, After: 40e9},
	{Side: figures.VappInt8, Decode: 160, StepBytes: 1e8, Before: 40e9, After: 40e9},
}

// TestTurns checks that a side is compared with the neighbouring turns of a peer and with the
// bandwidth around its own turns.
func TestTurns(t *testing.T) {
	p := figures.Part{Turns: turns}
	for _, c := range []struct {
		what      string
		got, want figures.Stat
	}{
		{"to llama.cpp", p.RatioTo(figures.VappInt8, figures.Llama), figures.Stat{Median: 1.6, Least: 0.9, Most: 3, Runs: 5}}, // 1.5, 3, 1.8, 0.9, 1.6
		{"to the tuned one", p.RatioTo(figures.VappInt8, figures.LlamaBest), figures.Stat{Median: 1.6, Least: 1.2, Most: 2, Runs: 2}},
		{"the other way round", p.RatioTo(figures.LlamaBest, figures.Llama), figures.Stat{Median: 1.125, Least: 0.75, Most: 1.5, Runs: 2}},
		{"to one that was not measured", p.RatioTo(figures.VappInt8, figures.Torch), figures.Stat{}},
		{"rates", p.Stat(figures.VappInt8, figures.Decode), figures.Stat{Median: 150, Least: 90, Most: 160, Runs: 3}},
		{"limits", p.Stat(figures.VappInt8, figures.DecodeLimit), figures.Stat{Median: 300, Least: 300, Most: 400, Runs: 3}},
		{"limits of a side that reads nobody knows what", p.Stat(figures.Llama, figures.DecodeLimit), figures.Stat{}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, c.got, c.want)
		}
	}
	old := figures.Part{Runs: []figures.Run{{Side: figures.Vapp, Values: figures.Values{figures.Decode: 12}}, {Side: figures.Llama, Values: figures.Values{figures.Decode: 10}}}}
	if got := old.RatioTo(figures.Vapp, figures.Llama); got != (figures.Stat{Median: 1.2, Least: 1.2, Most: 1.2, Runs: 1}) {
		t.Errorf("of runs: %+v", got)
	}
}

// measured is a comparison with two measured parts.
func measured() figures.Parts {
	date := time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)
	vapp := func(decode, prefill float64) figures.Values {
		return figures.Values{
			figures.Decode: decode, figures.DecodeLimit: 20, figures.Prefill512: prefill, figures.MatrixLimit: 200, figures.Sixteen: 300,
			figures.Bandwidth: 40e9, figures.RateF32: 200e9, figures.RateBF16: 400e9, figures.Peak: 1000 << 20, figures.Planned: 1200 << 20,
			figures.SixteenLimit: 500, figures.FirstLimit: 800, figures.Item + "weights": 700 << 20, figures.Item + "kv": 500 << 20,
		}
	}
	bf16 := figures.Part{Name: "llama1b-bf16", Date: date, Runs: []figures.Run{
		{Side: figures.Machine, Command: []string{"limits"}, Values: figures.Values{figures.Bandwidth: 44e9, figures.RateF32: 2e11, figures.RateBF16: 4e11, figures.RateInt8: 9e11}},
		{Side: figures.Llama, Command: []string{"llama-bench", "-m", "x.gguf"}, Seconds: 12.4, Foreign: 0.03, Values: figures.Values{figures.Decode: 10, figures.Prefill512: 100}},
		{Side: figures.Vapp, Command: []string{"vapp", "bench"}, Seconds: 9, Foreign: 0.5, Values: vapp(18, 90), Steps: []figures.Step{
			{Work: figures.Work{Streams: 1, Prompt: 512, Output: 1}, Kind: "prefill", Limit: 2e6, Ops: []figures.Op{
				{Op: "linear", Calls: 9, Micros: 3e6, Share: 0.75, Threads: 1.5}, {Op: "attention", Calls: 1, Micros: 9.9e5, Share: 0.2475, Threads: 2},
				{Op: "(no step)", Micros: 1e4, Share: 0.0025}, {Op: "all", Calls: 10, Micros: 4e6, Share: 1},
			}},
			{Work: figures.Work{Streams: 1, Prompt: 1, Output: 32}, Kind: "decode", Limit: 5e4, Ops: []figures.Op{
				{Op: "linear", Calls: 9, Micros: 5.4e4, Share: 1, Threads: 2}, {Op: "all", Calls: 9, Micros: 5.4e4, Share: 1},
			}},
		}},
		{Side: figures.LlamaBest, Command: []string{"llama-bench", "-fa", "1"}, Values: figures.Values{figures.Decode: 12, figures.Prefill512: 90}},
		{Side: figures.Llama, Values: figures.Values{figures.Decode: 11, figures.Prefill512: 110, figures.Peak: 900 << 20, figures.Sixteen: 100}},
		{Side: figures.Vapp, Values: vapp(19, 110)},
		{Side: figures.Vapp, Values: figures.Values{figures.Served: 280, figures.TTFT: 900, figures.MedianTTFT: 500, figures.ITL: 60, figures.MedianITL: 40, figures.ServerPeak: 1100 << 20}},
		{Side: figures.Llama, Values: figures.Values{figures.Served: 40, figures.TTFT: 3000, figures.MedianTTFT: 2000, figures.ITL: 160, figures.MedianITL: 140, figures.ServerPeak: 950 << 20}},
		{Side: figures.Torch, Values: figures.Values{figures.Decode: 17.5, figures.Prefill512: 80}},
	}}
	q8 := figures.Part{Name: "llama1b-q8_0", Date: date, Notes: []string{"Something was not measured."}, Runs: []figures.Run{
		{Side: figures.Llama, Values: figures.Values{figures.Decode: 10, figures.Prefill512: 100}},
		{Side: figures.Vapp, Values: vapp(12.5, 90)},
		{Side: figures.VappInt8, Values: vapp(17, 360)},
	}}
	smol := figures.Part{Name: "smollm2-q4_1", Date: date, Turns: turns, Runs: []figures.Run{
		{Side: figures.Llama, Command: []string{"turns"}, Turns: true}, {Side: figures.VappInt8, Command: []string{"vapp"}, Turns: true},
	}}
	streams := figures.Part{Name: figures.Streams, Date: date, Runs: []figures.Run{{Side: figures.Vapp, Values: figures.Values{figures.ServerShare: 3.1}}}}
	return figures.Parts{"llama1b-bf16": bf16, "llama1b-q8_0": q8, "smollm2-q4_1": smol, figures.Streams: streams}
}

// TestReport compares the report of fixed figures with the golden file.
func TestReport(t *testing.T) {
	const path = "testdata/report.md"
	m := figures.Place{CPU: "a processor", Lines: []string{"2 cores", "llama.cpp of a commit"}}
	got := figures.Report(measured(), m, "By hand: the first.\n\nAnd the last.")
	goldentest.Compare(t, path, got)
	if again := figures.Report(measured(), m, figures.Notes(got)); again != got {
		t.Errorf("a second report is not the first:\n%s", cmp.Diff(got, again))
	}
	m.AMX = true
	if strings.Contains(figures.Report(nil, m, ""), "has no AMX") || !strings.Contains(got, "has no AMX") {
		t.Error("AMX is told where it is not, or the other way round")
	}
}

// tiled is a comparison on a machine with AMX: a file of four bits with a side that favors decoding.
func tiled() figures.Parts {
	part := figures.Part{Name: "llama1b-q4_0", Runs: []figures.Run{
		{Side: figures.Llama, Values: figures.Values{figures.Decode: 10}},
		{Side: figures.Vapp, Values: figures.Values{figures.Decode: 14, figures.DecodeLimit: 20}},
		{Side: figures.VappFavor, Values: figures.Values{figures.Decode: 15, figures.DecodeLimit: 20}},
	}}
	return figures.Parts{part.Name: part}
}

// TestTargets checks the targets that depend on the machine or on the limit of the run.
func TestTargets(t *testing.T) {
	plain, tiles := figures.Report(tiled(), figures.Place{}, ""), figures.Report(tiled(), figures.Place{AMX: true}, "")
	far := measured() // a limit of 20 is 1.67 times the better llama.cpp of 12
	bf16 := figures.Report(far, figures.Place{AMX: true}, "")
	for _, c := range []struct{ what, page, want string }{
		{"codes of four bits on a grid", tiles, "| Llama-3.2-1B Q4_0, decode, batch 1 | 14.0 | 10.0 | 10.0 | – | 70 % of 20.0 | 1.40x | ≥ 0.65 of the bandwidth<br>≥ 1.2x llama.cpp | yes, 0.70<br>yes, 1.40x |"},
		{"exact codes by cpu.favor", tiles, "| Llama-3.2-1B Q4_0, decode, batch 1, favor decode | 15.0 | 10.0 | 10.0 | – | 75 % of 20.0 | 1.50x | ≥ 0.80 of the bandwidth<br>≥ 1.2x llama.cpp | **no**, 0.75<br>yes, 1.50x |"},
		{"exact codes without AMX", plain, "≥ 0.80 of the bandwidth<br>≥ 1.2x llama.cpp | **no**, 0.70<br>yes, 1.40x |"},
		{"prompts on tiles", bf16, "≥ 0.32 of the tile rate<br>≥ 10x llama.cpp<br>≥ 2x PyTorch | yes, 0.50<br>limit 1.90x, vapp 0.95x<br>**no**, 1.25x |"},
		{"the sum", bf16, "multiples of a peer that the limit of this machine does not allow"},
	} {
		if !strings.Contains(c.page, c.want) {
			t.Errorf("%s: no %q in\n%s", c.what, c.want, c.page)
		}
	}
	if _, missed, _ := strings.Cut(bf16, "## Missed"); strings.Contains(missed[:strings.Index(missed, "## Why")], "bf16, prefill 512: ≥ 10x") {
		t.Errorf("a multiple beyond the limit counts as missed:\n%s", missed)
	}
}

// TestPageName checks the names of processors' pages.
func TestPageName(t *testing.T) {
	for _, c := range []struct{ model, family, number, want string }{
		{"AMD EPYC", "25", "17", "amd-epyc-25-17.md"},
		{"Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "6", "143", "intel-xeon-platinum-8481c-6-143.md"},
		{"AMD Ryzen 9 7950X 16-Core Processor", "25", "97", "amd-ryzen-9-7950x-16-core-25-97.md"},
		{"unknown", "unknown", "unknown", "unknown-unknown-unknown.md"},
	} {
		if got := figures.PageName(c.model, c.family, c.number); got != c.want {
			t.Errorf("%s: %s, want %s", c.model, got, c.want)
		}
	}
}

// TestIndex checks the index of two machines' pages, and that other texts are refused by name.
func TestIndex(t *testing.T) {
	a := figures.Report(measured(), figures.Place{CPU: "a processor", Lines: []string{"2 cores"}}, "")
	b := figures.Report(tiled(), figures.Place{CPU: "another", Lines: []string{"4 cores"}, AMX: true}, "")
	got, err := figures.Index(map[string]string{"b.md": b, "a.md": a})
	if err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "testdata/index.md", got)
	for _, bad := range []string{"", "# Performance\n", a[:len(a)/4], strings.Replace(a, "targets are met", "met", 1), strings.ReplaceAll(a, " | ", "")} {
		if _, err := figures.Index(map[string]string{"c.md": bad}); err == nil || !strings.Contains(err.Error(), "c.md: ") {
			t.Errorf("of a text of %d bytes: %v", len(bad), err)
		}
	}
}

// TestPages checks that docs/performance.md is the index of the pages in docs/performance.
func TestPages(t *testing.T) {
	files, err := filepath.Glob("../../../docs/performance/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("pages: %v, %v", files, err)
	}
	pages := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(f)] = string(text)
	}
	got, err := figures.Index(pages)
	if err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "../../../docs/performance.md", got)
}

// TestNotes checks that notes are kept, and that incomplete ones are not.
func TestNotes(t *testing.T) {
	b, e := figures.NotesBegin, figures.NotesEnd
	for old, want := range map[string]string{
		"": "", "x" + b + "\n\ntext\n\nmore\n\n" + e + "y": "text\n\nmore", b + "text": "", e + "text" + b: "", b + "\n" + e: "",
	} {
		if got := figures.Notes(old); got != want {
			t.Errorf("of %q: %q, want %q", old, got, want)
		}
	}
}

// TestSave checks that a saved part is loaded again, and that other parts are absent.
func TestSave(t *testing.T) {
	dir, parts := t.TempDir(), measured()
	for _, p := range parts {
		if err := p.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	got, err := figures.Load(dir, figures.Names())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parts, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := os.WriteFile(dir+"/streams.json", []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := figures.Load(dir, figures.Names()); err == nil || !strings.Contains(err.Error(), "measure the part again") {
		t.Errorf("a torn file: %v", err)
	}
}
