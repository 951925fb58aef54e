package compat

import (
	"fmt"
	"slices"
	"strings"
)

// rankFit is the memory that a rank of several holds outside the allocator, from logged runs:
// testdata/ranks.json has them, and a test computes these figures from its runs. Middle and bounds
// are in GiB.
type rankFit struct {
	versions           string
	runs, sources      int
	low, high, middle  float64
	capabilities       []int
	groups             []string // of ranks.json
	releases           []Release
	pipeline, together bool // a pipeline without tensor ranks; devices that NVLink or NVSwitch joins
}

// Releases before 0.11 measure a rank before NCCL starts, and count all that communication takes.
// Later ones measure after it. 0.19.0 takes a workspace for its fused all-reduce on compute
// capability 9.0 and 10.x.
var rankFits = []rankFit{
	{versions: "0.7 to 0.10", runs: 4, sources: 4, low: 1.04, high: 2.10, middle: 1.57, capabilities: []int{80, 90},
		groups: []string{"whole, NVLink"}, releases: []Release{V07, V2025Aug}, together: true},
	{versions: "0.7 to 0.8", runs: 4, sources: 4, low: 0.20, high: 0.32, middle: 0.26, capabilities: []int{75, 86, 89},
		groups: []string{"whole, other"}, releases: []Release{V07, V2025Aug}},
	{versions: "0.19.0", runs: 2, sources: 1, low: 0.07, high: 0.07, middle: 0.07, capabilities: []int{90},
		groups: []string{"later, pipeline"}, releases: []Release{V017, V019, V033}, pipeline: true},
	{versions: "0.11 and 0.19", runs: 12, sources: 2, low: 0.54, high: 2.21, middle: 1.375, capabilities: []int{90},
		groups: []string{"later, 0.11", "later, 0.19"}, releases: []Release{V017}, together: true},
	{versions: "0.19.0", runs: 10, sources: 1, low: 2.07, high: 2.21, middle: 2.14, capabilities: []int{90},
		groups: []string{"later, 0.19"}, releases: []Release{V019}, together: true},
	{versions: "0.19 to August 2026", runs: 12, sources: 3, low: 0.95, high: 2.21, middle: 1.58, capabilities: []int{90, 100, 103},
		groups: []string{"later, 0.19", "later, 0.26"}, releases: []Release{V033}, together: true},
	// The middle is the reference's figure, not that of the range.
	{versions: "0.11 and 0.17", runs: 4, sources: 3, low: 0.09, high: 0.55, middle: 0.50, capabilities: []int{80, 90, 120},
		groups: []string{"later, 0.11", "later, other"}, releases: []Release{V017, V019}},
	{versions: "0.11 to 0.27", runs: 5, sources: 4, low: 0.09, high: 1.70, middle: 0.895, capabilities: []int{80, 90, 120},
		groups: []string{"later, 0.11", "later, other", "later, other 0.27"}, releases: []Release{V033}},
}

func (r Request) ranks() int { return r.TensorParallel * r.PipelineParallel }

// rankFit returns the fit for a release, a device and the ranks of a request.
func (in *run) rankFit() rankFit {
	rel := in.rel
	if rel.Reconstructed() {
		rel = V017
	}
	c := in.d.capability()
	together := in.d.Major == 9 || in.d.Major == 10 || !rel.atLeast(V017) && (c == 70 || c == 80)
	pipeline := rel.atLeast(V017) && in.r.TensorParallel == 1
	for _, f := range rankFits {
		if slices.Contains(f.releases, rel) && f.pipeline == pipeline && (pipeline || f.together == together) {
			return f
		}
	}
	panic("compat: no fit for " + string(rel))
}

// spread returns the distance from the middle that another run is expected to reach: n draws of a
// uniform law span (n-1)/(n+1) of its range.
func (f rankFit) spread() float64 {
	n := float64(f.runs)
	return max(f.high-f.middle, f.middle-f.low) * (n + 1) / (n - 1)
}

// band returns the bound of the figure, in GiB, for compute capabilities that the runs have.
func (f rankFit) band(rel Release) float64 {
	by := f.spread() + gib(oneBand(rel))
	if f.sources == 1 {
		by *= 2
	}
	return by
}

// note says which runs a band is from.
func (f rankFit) note() string {
	return fmt.Sprintf("several ranks outside of PyTorch: %.2f to %.2f GiB in %d runs of %s", f.low, f.high, f.runs, f.versions)
}

// unknown lists the memory of several ranks by which the activation peak may be too low, and that no
// log shows apart.
func (in *run) unknown(a activation) []piece {
	hidden := int64(in.r.MaxNumBatchedTokens) * in.shape.hidden * in.dtype
	var list []piece
	switch {
	case in.r.ranks() == 1:
	case in.rel == V07 && in.r.PipelineParallel > 1:
		list = append(list, piece{"hidden and residual between stages", 2 * hidden}, piece{"sampler of the last stage alone", total(a.sampler)})
	case in.r.PipelineParallel > 1:
		list = append(list, piece{"between stages", 2 * hidden})
	}
	if a.encodes() { // an estimate from the tower's layers: half of what it adds
		list = append(list, piece{"the encoder's pass", (total(a.encoder) - max(total(a.text), total(a.sampler))) / 2})
	}
	for _, p := range a.kept {
		if p.Name == "moe workspace" && in.r.ranks() > 1 {
			list = append(list, p) // two of three logged mixtures take less, by this
		}
	}
	return list
}

// stagePeak returns the activation of a stage. The V1 engine samples on the last stage alone, and a
// stage keeps the hidden states and residuals that it exchanges: fitted on two runs of 0.19.0, within
// 0.05 GiB.
func (o *outcome) stagePeak(stage int) activation {
	a, p := o.activation, o.r.PipelineParallel
	if p == 1 || o.rel == V07 {
		return a
	}
	hidden := int64(o.r.MaxNumBatchedTokens) * o.shape.hidden * o.dtype
	a.text = append(slices.Clone(a.text), piece{"between stages", 4 * hidden})
	a.sampler = append(slices.Clone(a.sampler), piece{"between stages", 2 * hidden})
	if stage > 0 {
		a.encoder = nil
	}
	if stage < p-1 && len(o.activation.text) > 0 {
		a.sampler = nil
	}
	return a
}

// unknownNote lists what widens the bounds of the memory.
func unknownNote(list []piece) string {
	var of []string
	for _, p := range list {
		of = append(of, fmt.Sprintf("%s %.0f", p.Name, float64(p.Bytes)/(1<<20)))
	}
	return "not known, MiB: " + strings.Join(of, " + ")
}
