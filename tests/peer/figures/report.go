package figures

import (
	"fmt"
	"strings"
	"time"
)

// Place describes the machine and the software; each line is shown unchanged.
type Place struct {
	CPU   string // its processor, the title of the page
	File  string // the page's name
	Lines []string
	AMX   bool // the machine has AMX
}

// Markers around the notes that are written by hand, which the report keeps.
const (
	NotesBegin = "<!-- written by hand: begin -->"
	NotesEnd   = "<!-- written by hand: end -->"
)

// Notes returns the text between the markers of an older report.
func Notes(old string) string {
	_, rest, found := strings.Cut(old, NotesBegin)
	notes, _, ended := strings.Cut(rest, NotesEnd)
	if !found || !ended {
		return ""
	}
	return strings.Trim(notes, "\n")
}

// Report returns the text of a machine's page.
func Report(parts Parts, m Place, notes string) string {
	var b strings.Builder
	b.WriteString(title + m.CPU + "\n\n" + head)
	for _, l := range m.Lines {
		fmt.Fprintf(&b, "- %s\n", l)
	}
	b.WriteString("\n" + method)
	if !m.AMX {
		b.WriteString(noAMX)
	}
	rows := table(parts, m.AMX)
	b.WriteString("\n## Against the targets\n\n")
	writeTable(&b, rows)
	b.WriteString("\n## Missed\n\n")
	writeMissed(&b, rows)
	b.WriteString("\n## Why\n\n" + why)
	writeWhy(&b, rows)
	b.WriteString("\n" + NotesBegin + "\n\n" + strings.TrimLeft(notes+"\n\n", "\n") + NotesEnd + "\n")
	b.WriteString("\n## What was measured\n\n")
	writeRuns(&b, parts)
	writeOps(&b, parts)
	return b.String()
}

const title = "# Performance: "

const head = `Written by ` + "`make bench-peer`" + `, which fetches and builds llama.cpp, makes the model files and
measures everything below on the machine that it runs on. Other machines have pages of their own:
[performance](../performance.md). ` + "`make bench-peer PART=llama1b-q8_0`" + `
measures one part again, or several, separated by commas; ` + "`PART=report`" + ` only writes this page.

## The machine

`

const method = `All sides run the same files one after the other, and then again in the same order: llama.cpp with
its defaults, vapp, llama.cpp tuned (flash attention on, weights read into huge pages instead of mapped), and vapp with
int8 activations if the format supports them. The latter has bf16 keys and values: they have the size of the f16 that
these files ask for, which is multiplied in f32. A figure is the median of the runs; ± is half of the
range between minimum and maximum. "Best" is the better of llama.cpp's two settings. For quantized files llama.cpp
always rounds activations to int8. vapp does so only if the profile sets ` + "`cpu: activations: \"int8\"`" + `, so it has
two rows; its server runs with int8 activations then, so that equal settings are compared.

Decoding is measured in turns of two or three seconds with all sides loaded before, because the bandwidth of a shared
machine changes within seconds. The two compared sides alternate (A B A B) and have six turns each; the others have
two to four. "Of best" and multiples of a peer are the median of the ratios of neighbouring turns, with minimum and
maximum next to it.

The limit of decoding is the mean of the read bandwidths measured just before and after a turn, divided by the bytes
that a step must read (weights and KV cache); the share is the median of the turns' shares. The limit of prefill
is the multiply-add rate of the dtype that is multiplied, with operands in registers, divided by the operations of
a token. The limit of 16 streams combines both: the prompts are multiplied, and each step takes the longer of reading and
multiplying. It is that of the engine's run, and the server is compared with the same limit.

Shares of the limit bind on every machine. A multiple of a peer is a target where the limit of the same run allows it;
where the limit itself is a smaller multiple, the table prints both: "limit 1.08x, vapp 1.10x".

Every side runs 32 tokens as a warm-up. Long measurements (16 streams, servers, 2,048 tokens, PyTorch, the profiles)
run once for each of ROUNDS; prompts of 512 tokens run twice, in turns. PyTorch's decoding is a run of its own, and
its ratio is that of the medians. Memory is the peak of resident memory during the runs of 16 streams, of vapp
and of llama-batched-bench; vapp's run fails unless its arenas use exactly the planned bytes.
Llama-3.2-1B has the published shape and random weights. SmolLM2-135M is the default model; its
bf16 file is made from the Q4_1 one.
`

const why = `For every row that misses a target: the ops on which its steps spend their time, as shares of the step,
measured in the same run (the tables are at the end). "linear" multiplies by the weights. The limit next to it is
that of the whole step on this machine. The distance of the two is what better kernels can gain; the time of the other
ops is what fewer or fused ops can gain.

`

const noAMX = `
This machine has no AMX. The share of the matrix rate is that of the rate that the machine has (AVX-512 bf16 if
available).
`

// row is a row of the table: a work and a side of vapp.
type row struct {
	work, side                    string
	vapp, llama, best, torch, top string
	limit                         string
	part                          Part
	key, limitKey                 string
	targets                       []target
}

func table(parts Parts, amx bool) []row {
	var rows []row
	add := func(f file, work, key, limit string, targets func(Part, string) []target) {
		p := parts[f.part]
		for _, side := range []string{Vapp, VappFavor, VappInt8} {
			show := func(side string) string { return p.Stat(side, key).in(unit(key)).cell() }
			mine := p.Stat(side, key)
			if mine.Runs == 0 && (side != Vapp || p.best(key, VappFavor, VappInt8).Runs > 0) {
				continue
			}
			best := p.best(key, Llama, LlamaBest)
			if key == Peak || key == TTFT { // less is better; the tuned llama.cpp is not compared
				best = p.Stat(Llama, key)
			}
			r := row{
				work: f.label + ", " + work, side: side, vapp: show(side), llama: show(Llama), best: best.in(unit(key)).cell(),
				torch: show(Torch), top: times(0, "", mine, best).ratioCell(), targets: targets(p, side),
				part: p, key: key, limitKey: limit,
			}
			if key == Decode {
				r.top = faster(0, "", p.ratioToBest(side, Llama, LlamaBest), mine).ratioCell()
			}
			if limit != "" && key != TTFT {
				r.limit = percent(p.share(side, key, limit), p.Stat(side, limit))
			}
			rows = append(rows, r.limited())
		}
	}
	for _, f := range files {
		add(f, "decode, batch 1", Decode, DecodeLimit, func(p Part, side string) []target { return f.decodeTargets(p, side, amx) })
	}
	for _, f := range files {
		for _, key := range []string{Prefill512, Prefill2048} {
			if key == Prefill512 || f.bf16() && f.big {
				add(f, key, key, MatrixLimit, func(p Part, side string) []target { return f.prefillTargets(p, side, key, amx) })
			}
		}
	}
	for _, f := range files {
		add(f, "16 streams 128 + 64, engine", Sixteen, SixteenLimit, f.sixteenTargets)
		add(f, "16 streams 128 + 64, server", Served, SixteenLimit, f.serveTargets)
	}
	for _, f := range files {
		add(f, "first token of 16 streams, p99, ms", TTFT, FirstLimit, f.firstTokenTargets)
	}
	for _, f := range files {
		add(f, "peak memory, MiB", Peak, "", f.memoryTargets)
	}
	add(files[len(files)-1], "start, s", Start, "", startTargets)
	s := parts[Streams]
	return append(rows, row{
		work: "SmolLM2-135M Q4_1, Go and HTTP at 64 streams", side: Vapp, vapp: s.Stat(Vapp, ServerShare).percentCell(), targets: streamTargets(s),
		part: s, key: ServerShare,
	})
}

func writeTable(b *strings.Builder, rows []row) {
	b.WriteString("| work | vapp | llama.cpp | llama.cpp best | PyTorch | of limit | of best | target | met |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		var texts, met []string
		for _, t := range r.targets {
			texts = append(texts, t.text)
			switch {
			case !t.measured():
				met = append(met, "not measured")
			case t.met():
				met = append(met, "yes, "+t.String())
			case t.beyond():
				met = append(met, "limit "+t.atLimit()+", vapp "+t.String())
			default:
				met = append(met, "**no**, "+t.String())
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.name(), r.vapp, r.llama, r.best, r.torch, r.limit, r.top,
			strings.Join(texts, "<br>"), strings.Join(met, "<br>"))
	}
}

func (r row) name() string {
	return r.work + strings.TrimPrefix(r.side, Vapp)
}

// limited returns r with the values of its targets at the machine's limit.
func (r row) limited() row {
	limit := r.part.Stat(r.side, r.limitKey).Median
	for i, t := range r.targets {
		r.targets[i].limit = ratio(limit, t.peer)
	}
	return r
}

func writeMissed(b *strings.Builder, rows []row) {
	n, asked, beyond := 0, 0, 0
	for _, r := range rows {
		for _, t := range r.targets {
			asked++
			switch {
			case !t.measured():
				n++
				fmt.Fprintf(b, "- %s: %s: not measured\n", r.name(), t.text)
			case t.beyond():
				beyond++
			case !t.met():
				n++
				fmt.Fprintf(b, "- %s: %s, it is %s\n", r.name(), t.text, t)
			}
		}
	}
	if n == 0 {
		b.WriteString("None.\n")
	}
	fmt.Fprintf(b, "\n%d of %d targets are met", asked-n-beyond, asked)
	if beyond > 0 {
		fmt.Fprintf(b, "; %d are multiples of a peer that the limit of this machine does not allow. Of these the table prints the limit's multiple and vapp's", beyond)
	}
	b.WriteString(".\n")
}

// day formats a date for the report.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
