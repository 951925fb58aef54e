package compat

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// rankRun is a run of several ranks whose log is public. Source is its address, or the words that
// find its text in an index of public sources that names no repository. The figures are GiB, 0 where
// the log lacks them: NonTorch is the least and the largest of its ranks, Activation the last stage's and
// First the first's. Held runs are in no fit.
type rankRun struct {
	Group, Source, Version, Run, Note                       string
	Capability, Tensor, Pipeline                            int
	NonTorch                                                [2]float64
	Held                                                    bool
	Release                                                 Release
	Model                                                   string
	Device                                                  Device
	Request                                                 Request
	Weights, Activation, First, Graphs, Estimate, Available float64
}

func rankRuns(t testing.TB) []rankRun {
	t.Helper()
	data, err := os.ReadFile("testdata/ranks.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []rankRun
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// planned returns the run as the planner computes it, nil where the log lacks what that takes.
func (r rankRun) planned(t testing.TB) *outcome {
	if r.Model == "" {
		return nil
	}
	return must(t, Inputs{Release: r.Release, Config: config(t, r.Model), Device: r.Device, Request: r.Request})
}

// bands returns the memory outside of PyTorch and its bound, in GiB, in each release whose fit has the
// run's group.
func (r rankRun) bands() map[Release][2]float64 {
	out := map[Release][2]float64{}
	for _, f := range rankFits {
		for _, rel := range f.releases {
			o := &outcome{run: &run{rel: rel, d: Device{Major: r.Capability / 10, Minor: r.Capability % 10}, r: Request{TensorParallel: r.Tensor, PipelineParallel: r.Pipeline}}}
			if slices.Contains(f.groups, r.Group) && slices.Equal(o.rankFit().groups, f.groups) {
				n, by := o.fittedNonTorch()
				out[rel] = [2]float64{gib(n), gib(by)}
			}
		}
	}
	return out
}

// TestRankFits computes each fit again from its runs.
func TestRankFits(t *testing.T) {
	for _, f := range rankFits {
		low, high, n := math.Inf(1), 0.0, 0
		sources, seen := map[string]bool{}, map[int]bool{}
		for _, r := range rankRuns(t) {
			if r.Held || !slices.Contains(f.groups, r.Group) {
				continue
			}
			low, high, n = min(low, r.NonTorch[0]), max(high, r.NonTorch[1]), n+1
			sources[r.Source], seen[r.Capability] = true, true
		}
		for _, c := range f.capabilities {
			if !seen[c] {
				t.Errorf("%v: no run of compute capability %d", f.groups, c)
			}
		}
		if f.low != low || f.high != high || f.runs != n || f.sources != len(sources) || len(f.capabilities) != len(seen) {
			t.Errorf("%v: %d runs of %d sources, %.2f to %.2f; its runs are %d of %d, %.2f to %.2f", f.groups, f.runs, f.sources, f.low, f.high, n, len(sources), low, high)
		}
		if middle := (low + high) / 2; math.Abs(f.middle-middle) > 1e-9 && f.middle != 0.5 {
			t.Errorf("%v: middle %.3f, want %.3f", f.groups, f.middle, middle)
		}
	}
}

// TestHeldRule checks that at least a quarter of the runs is held, by a rule and not by choice: in
// each group of five runs or more, by source and run, the first of every three.
func TestHeldRule(t *testing.T) {
	groups := map[string][]rankRun{}
	held, all := 0, rankRuns(t)
	for _, r := range all {
		groups[r.Group] = append(groups[r.Group], r)
		if r.Held {
			held++
		}
	}
	for name, runs := range groups {
		slices.SortFunc(runs, func(a, b rankRun) int { return strings.Compare(a.Source+a.Run, b.Source+b.Run) })
		for i, r := range runs {
			if want := name == "" || len(runs) >= 5 && i%3 == 0; r.Held != want {
				t.Errorf("%s: %s: held is %v", name, r.Run, r.Held)
			}
		}
	}
	if 4*held < len(all) {
		t.Errorf("%d of %d runs are held", held, len(all))
	}
}

// TestHeldRuns checks that the printed bands contain each run, above all those in no fit: memory
// outside of PyTorch, memory for the KV cache, graphs and their estimate.
func TestHeldRuns(t *testing.T) {
	checked := 0
	for _, r := range rankRuns(t) {
		bands := r.bands()
		if len(bands) == 0 && r.Group != "" {
			t.Errorf("%s: no release has its fit", r.Run)
		}
		for rel, b := range bands {
			if r.Held {
				checked++
			}
			for _, n := range r.NonTorch {
				if math.Abs(n-b[0]) > b[1] {
					t.Errorf("%s, held %v, %v: %.2f GiB outside of PyTorch, computed %.2f ± %.2f", r.Run, r.Held, rel, n, b[0], b[1])
				}
			}
		}
		o := r.planned(t)
		if o == nil {
			continue
		}
		report := o.report()
		for key, logged := range map[string]float64{"available KV cache memory": r.Available, "graph memory": r.Graphs} {
			l, ok := report.Find(key)
			if logged > 0 && (!ok || math.Abs(l.Value-logged) > l.Residual/100*l.Value+0.005) {
				t.Errorf("%s, held %v: %s: logged %.2f, computed %.2f ± %.1f %%", r.Run, r.Held, key, logged, l.Value, l.Residual)
			}
		}
		last, first := gib(o.stagePeak(len(o.stages)-1).peak()), gib(o.stagePeak(0).peak())
		by := gib(total(o.unknown)) + 0.05
		if r.Activation > 0 && math.Abs(last-r.Activation) > by || r.First > 0 && math.Abs(first-r.First) > by {
			t.Errorf("%s: activation %.2f and %.2f, computed %.2f and %.2f ± %.2f", r.Run, r.First, r.Activation, first, last, by)
		}
		if w := gib(o.stages[0].total); math.Abs(w/r.Weights-1) > 0.015 {
			t.Errorf("%s: weights %.2f, computed %.2f", r.Run, r.Weights, w)
		}
		if n, _ := o.graphBytes(o.graphs); r.Estimate > 0 && math.Abs(gib(n)-r.Estimate) > gib(o.estimateError(n)) {
			t.Errorf("%s: estimate of graphs %.2f, computed %.2f", r.Run, r.Estimate, gib(n))
		}
	}
	if checked < 11 {
		t.Errorf("%d held runs were compared", checked)
	}
}

// fullGraph returns the bytes that a FULL graph adds on compute capability 9.0, the mean of the runs of
// dense models that are not held.
func fullGraph(t testing.TB) (mean int64, runs int) {
	var sum float64
	for _, r := range rankRuns(t) {
		o := r.planned(t)
		if o == nil || r.Held || o.d.Major != 9 || o.shape.experts > 0 {
			continue
		}
		full := int64(len(o.graphs.full))
		all, _ := o.graphBytes(o.graphs)
		sum += (r.Graphs - gib(all-full*hopperGraph)) / float64(full)
		runs++
	}
	return bytesOf(sum / float64(runs)), runs
}

// TestRankGraphs compares the memory of a FULL graph with its runs.
func TestRankGraphs(t *testing.T) {
	if mean, n := fullGraph(t); n < 6 || mean < hopperGraph*9/10 || mean > hopperGraph*11/10 {
		t.Errorf("%d bytes a graph in %d runs, fitted are %d", mean, n, hopperGraph)
	}
}

func documentRanks(t testing.TB, b *strings.Builder) {
	b.WriteString("\n## Several ranks\n\nWhat a rank of a tensor or pipeline parallel run holds outside of PyTorch (NCCL, the release's own all-reduce, symmetric memory), from published logs. " +
		"**Fitted**: the figure is the middle of the runs' range (0.50, near the one run that the golden page has, for others in vllm-0.17 and 0.19). The band is the distance to its ends times (n+1)/(n-1), because n draws of a uniform law span (n-1)/(n+1) of its range, plus the one-GPU " +
		"band of 0.18 GiB (0.36 GiB in vllm-0.33). It doubles where all runs have one source, and for compute capabilities not listed.\n\n" +
		"| releases | devices | ranks | runs | sources | logged, GiB | figure | band | compute capabilities |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range rankFits {
		devices, ranks := "others", "tensor"
		before := slices.Contains(f.releases, V07)
		switch {
		case f.pipeline:
			devices, ranks = "all", "pipeline alone"
		case before:
			devices, ranks = "compute capability 7.5, 8.6, 8.9, 12.x", "all"
			if f.together {
				devices = "compute capability 7.0, 8.0, 9.0, 10.x"
			}
		case f.together:
			devices = "compute capability 9.0, 10.x"
		}
		var releases, seen []string
		for _, r := range f.releases {
			releases = append(releases, string(r))
		}
		for _, c := range f.capabilities {
			seen = append(seen, fmt.Sprintf("%d.%d", c/10, c%10))
		}
		fmt.Fprintf(b, "| %s | %s | %s | %d | %d | %.2f to %.2f | %.2f | ±%.2f | %s |\n", strings.Join(releases, ", "), devices, ranks, f.runs, f.sources, f.low, f.high, f.middle, f.band(f.releases[0]), strings.Join(seen, ", "))
	}
	mean, n := fullGraph(t)
	fmt.Fprintf(b, "\nOn compute capability 9.0 a FULL graph adds %d MiB: **fitted** on %d runs of dense models of 0.19.0 (mean %.1f MiB). The band of the graphs is 50 %%; it is 100 %% for mixtures that no log "+
		"has, for more than four ranks, and on other devices for a pipeline or more than two ranks. The release's own estimate of them has a band of 100 %%. The activation of a stage of the V1 engine is **fitted** on the two "+
		"pipelines, with a band of two hidden states. The workspace of experts widens the band of several ranks: two of three logged mixtures took less.\n\n"+
		"| run | activation, GiB | computed | first stage | computed | graphs, GiB | computed | their estimate, GiB |\n|---|---|---|---|---|---|---|---|\n", hopperGraph>>20, n, float64(mean)/(1<<20))
	for _, r := range rankRuns(t) {
		if r.Activation == 0 {
			continue
		}
		o := r.planned(t)
		graphs, by := o.graphBytes(o.graphs)
		first := [2]string{"-", "-"}
		if r.First > 0 {
			first = [2]string{fmt.Sprintf("%.2f", r.First), fmt.Sprintf("%.2f", gib(o.stagePeak(0).peak()))}
		}
		fmt.Fprintf(b, "| %s | %.2f | %.2f | %s | %s | %.2f | %.2f ± %.2f | %s |\n", r.Run, r.Activation, gib(o.stagePeak(len(o.stages)-1).peak()), first[0], first[1], r.Graphs, gib(graphs), gib(by), orDash(strings.TrimPrefix(fmt.Sprintf("%.2f", r.Estimate), "0.00")))
	}
	b.WriteString("\nThe runs. In each group with five or more, the first of every three by source and name is **held out**: it is in no fit, and a test checks that the band has it. Groups of fewer are fitted whole. " +
		"Releases to 0.10 measure before NCCL starts and count all of it; later ones measure after. What they do not subtract is about 1 GiB a rank on H100. A source without an address is the words that find " +
		"the text in an index that names no repository. Not used: AMD gfx906, Alibaba's PPU, a GB10 (memory shared with the host), a data parallel run, and runs of 4-bit weights with an image tower.\n\n" +
		"| run | version | group | outside of PyTorch, GiB | computed | KV cache, GiB | computed |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rankRuns(t) {
		name, group, logged, computed, kv, planned := r.Run, r.Group, "-", "-", "-", "-"
		if strings.HasPrefix(r.Source, "http") {
			name = fmt.Sprintf("[%s](%s)", r.Run, r.Source)
		} else {
			name += " (" + strings.TrimPrefix(r.Source, "source index, words: ") + ")"
		}
		if r.Held {
			group = strings.TrimPrefix(group+", **held out**", ", ")
		}
		if r.NonTorch[1] > 0 {
			logged = fmt.Sprintf("%.2f", r.NonTorch[0])
			if r.NonTorch[1] != r.NonTorch[0] {
				logged += fmt.Sprintf(" to %.2f", r.NonTorch[1])
			}
		}
		narrowest := math.Inf(1)
		bands := r.bands()
		for _, rel := range Releases() {
			if band, ok := bands[rel]; ok && band[1] < narrowest {
				computed, narrowest = fmt.Sprintf("%.2f ± %.2f (%s)", band[0], band[1], rel), band[1]
			}
		}
		if o := r.planned(t); o != nil {
			l, _ := o.report().Find("available KV cache memory")
			kv, planned = fmt.Sprintf("%.2f", r.Available), fmt.Sprintf("%.2f ± %.2f", l.Value, l.Residual/100*l.Value)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", name, r.Version, group, logged, computed, kv, planned)
	}
}
