package models

import (
	"fmt"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// mixture is a feedForward of experts: a router selects some of them for each token. Some families
// add an MLP that every token passes (shared experts). newMixture returns the names of most
// families; a family's file alters them.
type mixture struct {
	c                   checkpoint.Config
	experts, top, width int           // width of an expert
	score               backend.Route // how the router's logits select and weigh; its values and weights are set later
	act                 backend.Act

	module string // prefix of the following names: "mlp."
	router string // module of the router
	// plainRouter means that no quantization converts the router, whatever quantization_config says.
	plainRouter bool
	// correction is the tensor that is added to the scores that select, of the shape below; "": none.
	correction      string
	correctionShape []int
	// Tensors of the experts. A "*" stands for the expert's number: each has a matrix of its own. Others
	// are stacks [experts, …]. If up is "", gate holds the rows of gate, then those of up.
	gate, up, down string
	transposed     bool // stacks are [experts, in, out]
	// scalesInput means that an expert's weight, a sigmoid, multiplies its input instead of its result.
	// There is one expert for each token then.
	scalesInput bool

	shared                  string // prefix of gate_proj, up_proj and down_proj of the shared experts; "": none
	sharedWidth             int
	sharedFused, sharedDown string // their modules, if they are others: gate and up in one matrix, down
	sharedGate              string // module of the shared experts' gate, a number for each token; "": none
}

// common returns the shared experts as an MLP.
func (m mixture) common() denseMLP {
	return denseMLP{c: m.c, width: m.sharedWidth, act: m.act, module: m.module + m.shared, fused: m.sharedFused, down: m.sharedDown, keep: true, partial: true}
}

// newMixture returns a mixture of experts of a width, with the names of Qwen's modules. It refuses
// impossible sizes.
func newMixture(c checkpoint.Config, width int) (mixture, error) {
	m := mixture{
		c: c, experts: c.NumExperts, top: c.ExpertsPerToken, width: width, module: "mlp.", router: "gate",
		gate: "experts.*.gate_proj.weight", up: "experts.*.up_proj.weight", down: "experts.*.down_proj.weight",
	}
	if c.Dialect == "gguf" {
		m.gate, m.up, m.down = "experts.gate_proj", "experts.up_proj", "experts.down_proj"
	}
	if err := checkExperts(c); err != nil {
		return m, err
	}
	if width < 1 {
		return m, &UnsupportedError{c.Architecture + " without the width of its experts", "the config has no moe_intermediate_size"}
	}
	var err error
	m.act, err = gateActivation(c)
	return m, err
}

// softmax sets a router that divides by the sum over all experts or, if selected, over the selected
// ones.
func (m *mixture) softmax(selected bool) {
	if m.score.Score = backend.Softmax; selected {
		m.score.Score = backend.SelectedSoftmax
	}
}

// corrected names the tensor that corrects the scores that select.
func (m *mixture) corrected(tensor string, shape ...int) {
	m.score.Corrected, m.correction, m.correctionShape = true, tensor, shape
}

// checkGroups refuses groups of experts that the router cannot choose from.
func (m mixture) checkGroups() error {
	n, top := m.score.Groups, m.score.TopGroups
	if n <= backend.MaxGroups && m.experts%n == 0 && m.experts >= 2*n && top <= n && m.top*n <= top*m.experts {
		return nil
	}
	return &UnsupportedError{fmt.Sprintf("n_group %d with topk_group %d", n, top),
		fmt.Sprintf("groups are up to %d runs of at least two of the %d experts, and those chosen must have %d", backend.MaxGroups, m.experts, m.top)}
}

func (m mixture) tensors(l *tensorList, layer string) {
	p, h := layer+m.module, m.c.HiddenSize
	if m.plainRouter {
		l.add(p+m.router+".weight", m.experts, h)
	} else {
		l.linear(p+m.router, false, m.experts, h)
	}
	if m.correction != "" {
		l.add(p+m.correction, m.correctionShape...)
	}
	add := func(name string, rows, cols int) {
		switch {
		case name == "":
		case strings.Contains(name, "*"):
			module := strings.TrimSuffix(name, ".weight")
			for e := range m.experts {
				l.linear(p+strings.Replace(module, "*", strconv.Itoa(e), 1), false, rows, cols)
			}
		case m.transposed:
			l.add(p+name, m.experts, cols, rows)
		default:
			l.add(p+name, m.experts, rows, cols)
		}
	}
	if m.up == "" {
		add(m.gate, 2*m.width, h)
	} else {
		add(m.gate, m.width, h)
		add(m.up, m.width, h)
	}
	add(m.down, h, m.width)
	if m.shared == "" {
		return
	}
	m.common().tensors(l, layer)
	if m.sharedGate != "" {
		l.linear(p+m.sharedGate, false, 1, h)
	}
}

func (m mixture) check(b Build) error {
	err := b.checkEven(m.width, "columns of an expert")
	if err == nil && m.shared != "" {
		err = b.checkEven(m.sharedWidth, "columns of the shared experts")
	}
	return err
}

// mixtureBlock is a mixture with its weights, for one rank.
type mixtureBlock struct {
	mixture
	routerWeight, correctionWeight backend.WeightID
	gateUp, down                   backend.WeightID
	width                          int   // of this rank
	common                         block // the shared experts; nil: none
	commonGate                     backend.WeightID
}

func (m mixture) load(l *loader, layer, name string) block {
	p := layer + m.module
	w := mixtureBlock{mixture: m, correctionWeight: backend.NoWeight, commonGate: backend.NoWeight}
	_, w.width = l.part(m.width)
	w.routerWeight = l.matrix(matrix{name: name + "router", group: "router"}, all(p+m.router+".weight"))
	if m.correction != "" {
		w.correctionWeight = l.vector(name+"correction", "router", all(p+m.correction))
	}
	stack := func(of string, pieces ...piece) backend.WeightID {
		for i := range pieces {
			pieces[i].transposed = m.transposed
		}
		return l.matrix(matrix{name: name + of, group: "experts", experts: m.experts, linear: true}, pieces...)
	}
	gate := l.rows(p+m.gate, m.width, 1)
	switch {
	case m.up != "":
		w.gateUp = l.gateUp(stack("gate_up", gate, l.rows(p+m.up, m.width, 1)))
	case l.Shard.World == 1:
		w.gateUp = l.gateUp(stack("gate_up", all(p+m.gate)))
	default:
		w.gateUp = l.gateUp(stack("gate_up", gate, gate.after(m.width)))
	}
	w.down = stack("down", l.cols(p+m.down, m.width, 1))
	if m.shared == "" {
		return w
	}
	w.common = m.common().load(l, layer, name+"shared_")
	if m.sharedGate != "" {
		gate := all(p + m.sharedGate + ".weight")
		w.commonGate = l.matrix(matrix{name: name + "shared_gate", group: "router"}, gate)
		l.adapt(w.commonGate, []piece{gate})
	}
	return w
}

// record consumes x and returns the sum of the selected experts and the shared ones, summed over
// the ranks.
func (w mixtureBlock) record(r *backend.Recorder, x backend.Value) backend.Value {
	in := r.Info(x)
	linear := func(name string, weight backend.WeightID, cols int) backend.Value {
		y := r.New(name, kernels.F32, in.Rows, cols)
		r.Do(backend.Linear{X: x, W: weight, Bias: backend.NoWeight, Y: y})
		return y
	}
	o := w.score
	o.Logits, o.Top, o.Correction, o.Scale = linear("router", w.routerWeight, w.experts), w.top, w.correctionWeight, backend.NoWeight
	o.Ids, o.Weights = r.New("expert_ids", kernels.I32, in.Rows, w.top), r.New("expert_weights", kernels.F32, in.Rows, w.top)
	s := backend.NoValue // the shared experts' result
	if w.scalesInput {
		if w.common != nil {
			s = w.common.record(r, x) // of x as it is
		}
		o.Score = backend.Logit
		r.Do(o)
		r.Do(backend.Gate{X: x, Gate: o.Weights})
		o.Score = backend.SelectedSoftmax // 1, of one expert
	}
	r.Do(o)
	r.Free(o.Logits)
	y := r.New("delta", kernels.F32, in.Rows, in.Cols)
	r.Do(backend.Experts{X: x, Ids: o.Ids, Weights: o.Weights, Y: y, GateUp: w.gateUp, Down: w.down,
		GateUpBias: backend.NoWeight, DownBias: backend.NoWeight, Top: w.top, Width: w.width, Activation: backend.Activation{Act: w.act}})
	r.Free(o.Ids, o.Weights)
	if w.common != nil {
		if s == backend.NoValue {
			s = w.common.record(r, x)
		}
		if w.commonGate != backend.NoWeight {
			gate := linear("shared_gate", w.commonGate, 1)
			r.Do(backend.Gate{X: s, Gate: gate})
			r.Free(gate)
		}
		r.Do(backend.Add{X: s, Into: y, Scale: backend.NoWeight})
		r.Free(s)
	}
	r.Do(backend.AllReduce{X: y})
	r.Free(x)
	return y
}

// sparse returns recipe.mlp for mixtures in the layers that of reports.
func sparse(m mixture, of func(layer int) bool) func(layer int) feedForward {
	return func(layer int) feedForward {
		if !of(layer) {
			return nil
		}
		return m
	}
}

// checkDenseLayers refuses layers without a mixture in a config that gives their MLP no width.
func (d recipe) checkDenseLayers() error {
	for i := range d.cfg.NumLayers {
		if d.mlp(i) == nil && d.dense.width == 0 {
			return &UnsupportedError{fmt.Sprintf("layer %d of %s without experts", i, d.cfg.Architecture), "the config has no intermediate_size for its MLP"}
		}
	}
	return nil
}

// laterLayers returns a skip function for the tensors of layers behind the last one, which predict
// further tokens: their number is num_nextn_predict_layers.
func laterLayers(c checkpoint.Config) func(tensor string) bool {
	return func(tensor string) bool {
		rest, ok := strings.CutPrefix(tensor, "model.layers.")
		digits, _, dot := strings.Cut(rest, ".")
		n, err := strconv.Atoi(digits)
		return ok && dot && err == nil && n >= c.NumLayers
	}
}
