package models

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// mambaLayer is the type of a layer with a Mamba-2 mixer in the place of attention.
const mambaLayer = "mamba"

// mamba2 describes the Mamba-2 mixers of a recipe (transformers: GraniteMoeHybridMambaLayer).
type mamba2 struct {
	c                                checkpoint.Config
	heads, headDim, stateDim, kernel int
	convBias                         bool
	convAs                           kernels.Format // of the convolution's inputs in the state
}

// readMamba2 reads the config; defaults are transformers'.
func readMamba2(c checkpoint.Config, s *checkpoint.Section) (*mamba2, error) {
	const most = 1 << 14
	m := &mamba2{
		c: c, heads: s.CountOr("mamba_n_heads", 1, most, 128),
		stateDim: s.CountOr("mamba_d_state", 1, most, 256), kernel: s.CountOr("mamba_d_conv", 2, 256, 4), convBias: s.FlagOr("mamba_conv_bias", true),
	}
	inner := c.HiddenSize * s.CountOr("mamba_expand", 1, 64, 2)
	groups, biased := s.CountOr("mamba_n_groups", 1, most, 1), s.FlagOr("mamba_proj_bias", false)
	if err := s.Err(); err != nil {
		return nil, err
	}
	switch {
	case inner%m.heads != 0 || inner/m.heads > most:
		return nil, &UnsupportedError{fmt.Sprintf("mamba_n_heads %d", m.heads), fmt.Sprintf("heads divide mamba_expand · hidden_size, %d, into at most %d numbers each", inner, most)}
	case groups != 1:
		return nil, &UnsupportedError{fmt.Sprintf("mamba_n_groups %d", groups), "all heads of a Mamba-2 layer share B and C; published models have 1"}
	case biased:
		return nil, &UnsupportedError{"mamba_proj_bias", "no published model has it"}
	case s.Has("time_step_limit") && !s.Null("time_step_limit"):
		return nil, &UnsupportedError{"time_step_limit", "steps of Mamba-2 layers are not limited; published models have none"}
	}
	m.headDim = inner / m.heads
	return m, nil
}

func (m *mamba2) inner() int    { return m.heads * m.headDim }
func (m *mamba2) channels() int { return m.inner() + 2*m.stateDim }

// tensors adds those of a layer; module is their prefix: "model.layers.0.mamba.".
func (m *mamba2) tensors(l *tensorList, module string) {
	l.linear(module+"in_proj", false, m.inner()+m.channels()+m.heads, m.c.HiddenSize)
	l.add(module+"conv1d.weight", m.channels(), 1, m.kernel)
	if m.convBias {
		l.add(module+"conv1d.bias", m.channels())
	}
	for _, name := range []string{"A_log", "D", "dt_bias"} {
		l.add(module+name, m.heads)
	}
	l.add(module+"norm.weight", m.inner())
	l.linear(module+"out_proj", false, m.c.HiddenSize, m.inner())
}

// mambaMixer is the weights of a mixer, besides its output projection.
type mambaMixer struct {
	z, xbc, dt      backend.WeightID
	conv, convBias  backend.WeightID
	aLog, d, dtBias backend.WeightID
	norm            backend.WeightID
}

func (m *mamba2) load(l *loader, module, name string) (mixer *mambaMixer, out backend.WeightID) {
	const group = "linear_attention"
	in := func(of string, row0, rows int) backend.WeightID {
		return l.matrix(matrix{name: name + of, group: group, linear: true}, piece{tensor: module + "in_proj.weight", row0: row0, rows: rows})
	}
	vector := func(of, tensor string) backend.WeightID { return l.vector(name+of, group, all(module+tensor)) }
	w := &mambaMixer{convBias: backend.NoWeight}
	w.z = in("in_z", 0, m.inner())
	w.xbc = in("in_xbc", m.inner(), m.channels())
	w.dt = in("in_dt", m.inner()+m.channels(), m.heads)
	t := l.tensor(module + "conv1d.weight")
	w.conv = l.add(backend.WeightSpec{Name: name + "conv", Group: group, Rows: 1, Cols: m.channels() * m.kernel, Use: backend.Vector, Source: t.Format,
		Parts: []backend.Part{{Tensor: t.Name, Rows: m.channels(), Elems: m.channels() * m.kernel, Format: t.Format}}})
	if m.convBias {
		w.convBias = vector("conv_bias", "conv1d.bias")
	}
	w.aLog, w.d, w.dtBias = vector("a_log", "A_log"), vector("d", "D"), vector("dt_bias", "dt_bias")
	w.norm = l.vector(name+"mamba_norm", "norm", all(module+"norm.weight"))
	return w, l.matrix(matrix{name: name + "mamba_out", group: group, linear: true}, all(module+"out_proj.weight"))
}

// class returns the class of the mixers' states. A step that verifies proposals keeps one state after
// each of them.
func (m *mamba2) class(layers, verified int, f kernels.Format) backend.KVClass {
	inputs := m.convAs
	if f == kernels.F32 {
		inputs = f // like keys and values
	}
	return backend.KVClass{Name: "state", Layers: layers, Format: kernels.F32, State: &backend.StateShape{
		ConvRows: m.kernel - 1 + verified, ConvCols: m.channels(), ConvFormat: inputs, Heads: m.heads, Rows: m.headDim, Cols: m.stateDim, Copies: 1 + verified,
	}}
}

// mix returns the result of a layer's mixer, before its output projection.
func (s *decoderPass) mix(layer int) backend.Value {
	r, m, w, at := s.r, s.mamba, s.layers[layer], s.paging.at[layer]
	n := s.input(w.attnNorm)
	rows := r.Info(n).Rows
	linear := func(name string, weight backend.WeightID, cols int) backend.Value {
		y := r.New(name, kernels.F32, rows, cols)
		r.Do(backend.Linear{X: n, W: weight, Bias: backend.NoWeight, Y: y})
		return y
	}
	xbc, dt, z := linear("xbc", w.mamba.xbc, m.channels()), linear("dt", w.mamba.dt, m.heads), linear("z", w.mamba.z, m.inner())
	r.Free(n)
	mixed := r.New("conv", kernels.F32, rows, m.channels())
	r.Do(backend.Conv{X: xbc, Y: mixed, W: w.mamba.conv, Kernel: m.kernel, Class: s.class + at.class, Layer: at.layer, Biased: m.convBias, Bias: w.mamba.convBias})
	r.Free(xbc)
	y := r.New("scan", kernels.F32, rows, m.inner())
	r.Do(backend.Mamba2{X: mixed, Dt: dt, Y: y, ALog: w.mamba.aLog, D: w.mamba.d, DtBias: w.mamba.dtBias,
		Heads: m.heads, HeadDim: m.headDim, StateDim: m.stateDim, Class: s.class + at.class, Layer: at.layer})
	r.Free(mixed, dt)
	both := r.New("z_scan", kernels.F32, rows, 2*m.inner())
	r.Do(backend.Concat{A: z, B: y, Y: both})
	r.Free(z)
	r.Do(backend.GLU{X: both, Y: y, Activation: backend.Activation{Act: backend.SiLU}})
	r.Free(both)
	r.Do(backend.Norm{X: y, Residual: backend.NoValue, W: w.mamba.norm, Eps: float32(m.c.RMSNormEps), Y: y})
	return y
}
