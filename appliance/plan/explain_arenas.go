package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine/backend"
)

// explainWeights lists the shapes of a group of weights, or of all; equal layers share a line.
func (p *Plan) explainWeights(e *Explanation, group string) {
	r := p.Account.Reservation
	count, bytes := map[string]int{}, map[string]int64{}
	var order []string
	var sum int64
	for i, w := range r.Weights {
		if group != "" && w.Group != group {
			continue
		}
		k := shapeOf(w, r.Packed[i])
		if count[k] == 0 {
			order = append(order, k)
		}
		count[k]++
		bytes[k] += r.Packed[i].Bytes
		sum += r.Packed[i].Bytes
	}
	if l := p.slots; group == loraGroup && l.Slots > 0 {
		e.step("LoRA: %s of rank %d, %s", numberOf(l.Slots, "slot"), l.Rank, Size(sum))
	}
	if group == "rounding" || group == "" {
		pad := r.Arenas[backend.Weights] - weightSum(r)
		if group == "rounding" {
			sum = pad
		} else {
			sum += pad
		}
		defer e.step("rounding of the arena to the allocation unit = %s", bytesOf(pad))
	}
	for _, k := range order {
		e.step("%d × %s = %s", count[k], k, bytesOf(bytes[k]))
	}
	e.Value, e.Source = bytesOf(sum)+", exact", fromLayout
}

func weightSum(r backend.Reservation) int64 {
	var n int64
	for _, p := range r.Packed {
		n += p.Bytes
	}
	return n
}

// shapeOf returns a weight's name, shape and format, without the number of its layer.
func shapeOf(w backend.WeightSpec, p backend.Packed) string {
	var name []string
	for _, s := range strings.Split(w.Name, ".") {
		if strings.Trim(s, "0123456789") == "" {
			s = "*"
		}
		name = append(name, s)
	}
	s := fmt.Sprintf("%s %s × %s", strings.Join(name, "."), Group(int64(w.Rows)), Group(int64(w.Cols)))
	if w.Experts > 0 {
		s += fmt.Sprintf(" × %d experts", w.Experts)
	}
	s += " " + formatOf(w, p)
	if n := w.Scales(); n > 0 {
		s += fmt.Sprintf(", %s scales %v", Group(n), w.Scaling)
	}
	return s
}

// explainScratch lists the largest values of the recorded step.
func (p *Plan) explainScratch(e *Explanation) {
	e.Value, e.Source = bytesOf(p.Account.Reservation.Arenas[backend.Scratch])+", exact", fromRecord
	for _, pr := range p.Account.Reservation.Programs {
		e.step("program %s: %d values over %d ops, each at a fixed offset; what lives at once peaks at %s", pr.Name, len(pr.Values), len(pr.Ops), bytesOf(pr.Scratch))
		byName := map[string]backend.ValueInfo{}
		for _, v := range pr.Values {
			if v.Bytes > byName[v.Name].Bytes {
				byName[v.Name] = v
			}
		}
		var list []backend.ValueInfo
		for _, v := range byName {
			list = append(list, v)
		}
		slices.SortFunc(list, func(a, b backend.ValueInfo) int {
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
		})
		for _, v := range list[:min(5, len(list))] {
			e.step("%s: %s rows × %s %v = %s", v.Name, Group(int64(pr.Rows(v.Rows))), Group(int64(v.Cols)), v.Format, bytesOf(v.Bytes))
		}
	}
}

// explainWorkspace lists the ops that need the most workspace, each computed alone.
func (p *Plan) explainWorkspace(e *Explanation) {
	a := p.Account
	e.Value, e.Source = bytesOf(a.Reservation.Arenas[backend.Workspace])+", exact", fromLayout
	e.step("one buffer for all kernels: the largest that one needs at %s tokens and %s sequences a step", Group(int64(p.Options.MaxNumBatchedTokens)), Group(int64(p.Options.MaxNumSeqs)))
	most := map[string]int64{}
	var names []string
	for _, pr := range a.Reservation.Programs {
		for _, op := range pr.Ops {
			alone := *pr
			alone.Ops = []backend.Op{op}
			name := pr.Name + " " + backend.OpName(op)
			n, err := a.Layout.Workspace(&alone)
			if err != nil || n <= most[name] {
				continue
			}
			if most[name] == 0 {
				names = append(names, name)
			}
			most[name] = n
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(most[b], most[a]) })
	for _, name := range names[:min(5, len(names))] {
		e.step("%s by itself: %s", name, bytesOf(most[name]))
	}
}

func (p *Plan) explainStep(e *Explanation) {
	s := p.Account.Reservation.Step
	e.Value, e.Source = bytesOf(p.Account.Reservation.Arenas[backend.StepIO])+", exact", "the step buffers' own layout (engine/backend)"
	e.step("%s of %s: one is filled while %s runs", setsOf(s), bytesOf(s.SetBytes()), map[bool]string{true: "the other", false: "another"}[s.NumSets() == 2])
	e.step("%s tokens × 12 B, %s sequences, %s sampled rows", Group(int64(s.Tokens)), Group(int64(s.Seqs)), Group(int64(s.Samples)))
	if p.slots.Slots > 0 {
		e.step("adapter slots of tokens: %s × 4 B", Group(int64(s.Tokens)))
	}
	for i, w := range s.MaxPages {
		e.step("page table of %s: %s sequences × %s pages × 4 B", p.Capacity.Classes[i].Name, Group(int64(s.Seqs)), Group(int64(w)))
	}
	e.step("two bit masks of the vocabulary for every sampled row: %s × 2 × %s words × 4 B", Group(int64(s.Samples)), Group(int64(s.MaskWords())))
	if s.Work > 0 {
		e.step("lists of the pieces of attention: %s × 4 B", Group(int64(s.Work)))
	}
	e.step("logit edits: %s rows × %s × 8 B", Group(int64(s.Samples)), Group(int64(s.Bias)))
}
