package backend

import (
	"cmp"

	"vapp.dev/kernels"
)

// op checks one op. It accepts an op of unknown type: the backend rejects it.
func (c *checker) op(op Op) {
	f32, i32 := kernels.F32, kernels.I32
	switch o := op.(type) {
	case Tokens:
		c.value("Out", o.Out, i32, PerToken, 1)
	case StoreTokens:
		c.value("Ids", o.Ids, i32, PerToken, 1)
		c.require(c.class(o.Class, 0).Plane, "class %d has no token plane", o.Class)
	case Embed:
		y := c.like(o.Y)
		c.value("Ids", o.Ids, i32, y.Rows, 1)
		c.value("Y", o.Y, f32, y.Rows, 0)
		c.weight("Table", o.Table, Lookup, 0, y.Cols)
	case Norm:
		c.norm(o)
	case Linear:
		y := c.like(o.Y)
		c.activation("Y", o.Y, y.Rows, 0, kernels.BF16)
		x := c.value("X", o.X, f32, y.Rows, 0)
		c.weight("W", o.W, Multiply, y.Cols, x.Cols)
		if o.Bias != NoWeight {
			c.weight("Bias", o.Bias, Vector, 1, y.Cols)
		}
		c.require(o.X != o.Y, "X is Y")
	case Adapt:
		c.adapt(o)
	case Gather:
		x := c.like(o.X)
		c.value("X", o.X, x.Format, PerToken, 0)
		c.value("Y", o.Y, x.Format, PerSample, x.Cols)
	case Sample:
		c.value("Logits", o.Logits, f32, PerSample, c.p.Vocab)
		c.require(c.class(o.Class, 0).Plane, "class %d has no token plane", o.Class)
	case OutputRows:
		c.value("X", o.X, f32, PerSample, 0)
	case GatherLast:
		x := c.like(o.X)
		c.value("X", o.X, x.Format, PerToken, 0)
		c.value("Y", o.Y, x.Format, PerSeq, x.Cols)
	case AllReduce:
		x := c.like(o.X)
		c.value("X", o.X, f32, x.Rows, 0)
	case AllGather:
		x := c.like(o.X)
		c.value("X", o.X, f32, x.Rows, 0)
		c.value("Y", o.Y, f32, x.Rows, x.Cols*c.p.Shard.World)
	case Receive:
		c.value("Y", o.Y, f32, c.like(o.Y).Rows, 0)
	case Send:
		c.value("X", o.X, f32, c.like(o.X).Rows, 0)
	default:
		c.drafts(op)
		c.attention(op)
		c.elementwise(op)
		c.mixture(op)
		c.vision(op)
	}
}

func (c *checker) norm(o Norm) {
	y, f32 := c.like(o.Y), kernels.F32
	c.value("Y", o.Y, f32, y.Rows, 0)
	c.activation("X", o.X, y.Rows, y.Cols, kernels.BF16)
	if o.Residual != NoValue {
		c.value("Residual", o.Residual, f32, y.Rows, y.Cols)
	}
	n := y.Cols
	if o.Segment > 0 {
		n = o.Segment
		c.require(y.Cols%n == 0, "Y has %d columns, no whole segments of %d", y.Cols, n)
	}
	if o.W != NoWeight {
		c.weight("W", o.W, Vector, 1, n)
	}
	if o.Gated {
		c.value("Gate", o.Gate, f32, y.Rows, y.Cols)
	}
	if o.Plain && o.Bias != NoWeight {
		c.weight("Bias", o.Bias, Vector, 1, n)
	}
}

func (c *checker) elementwise(op Op) {
	f32 := kernels.F32
	switch o := op.(type) {
	case Add:
		into := c.like(o.Into)
		c.value("Into", o.Into, f32, into.Rows, 0)
		c.activation("X", o.X, into.Rows, into.Cols, kernels.BF16)
		if o.Scale != NoWeight {
			c.weight("Scale", o.Scale, Vector, 1, 1)
		}
	case Concat:
		a, b := c.like(o.A), c.like(o.B)
		c.value("A", o.A, f32, a.Rows, 0)
		c.value("B", o.B, f32, a.Rows, 0)
		c.value("Y", o.Y, f32, a.Rows, a.Cols+b.Cols)
	case Reorder:
		y := c.like(o.Y)
		c.value("Y", o.Y, f32, y.Rows, 0)
		c.value("X", o.X, f32, y.Rows, 0)
		c.weight("Order", o.Order, Vector, 1, y.Cols)
		c.require(o.X != o.Y, "X is Y")
	case Softcap:
		c.value("X", o.X, f32, c.like(o.X).Rows, 0)
		c.require(o.Cap > 0, "a cap of %g", o.Cap)
	case Activate:
		c.value("X", o.X, f32, c.like(o.X).Rows, 0)
	case Gate:
		x := c.like(o.X)
		c.value("X", o.X, f32, x.Rows, 0)
		if gate := c.like(o.Gate); gate.Cols == 1 {
			c.value("Gate", o.Gate, f32, x.Rows, 1)
		} else {
			c.value("Gate", o.Gate, f32, x.Rows, x.Cols)
		}
		c.require(o.X != o.Gate, "X is Gate")
	case GLU:
		y := c.like(o.Y)
		c.value("Y", o.Y, f32, y.Rows, 0)
		c.activation("X", o.X, y.Rows, 2*y.Cols, kernels.BF16)
		c.require(o.X != o.Y, "X is Y")
	}
}

func (c *checker) mixture(op Op) {
	f32 := kernels.F32
	switch o := op.(type) {
	case Route:
		l := c.like(o.Logits)
		c.value("Logits", o.Logits, f32, l.Rows, 0)
		c.require(o.Top > 0 && o.Top <= l.Cols, "the best %d of %d experts", o.Top, l.Cols)
		c.scores(o, l.Cols)
		c.value("Ids", o.Ids, kernels.I32, l.Rows, o.Top)
		c.value("Weights", o.Weights, f32, l.Rows, o.Top)
		if o.Scale != NoWeight {
			c.weight("Scale", o.Scale, Vector, 1, l.Cols)
		}
	case Experts:
		x := c.like(o.X)
		c.value("X", o.X, f32, x.Rows, 0)
		c.activation("Y", o.Y, x.Rows, x.Cols, kernels.BF16)
		c.value("Ids", o.Ids, kernels.I32, x.Rows, o.Top)
		c.value("Weights", o.Weights, f32, x.Rows, o.Top)
		up := c.weight("GateUp", o.GateUp, Multiply, 2*o.Width, x.Cols)
		down := c.weight("Down", o.Down, Multiply, x.Cols, o.Width)
		c.require(up.Experts > 0 && up.Experts == down.Experts, "stacks of %d and %d experts", up.Experts, down.Experts)
		if o.GateUpBias != NoWeight {
			c.weight("GateUpBias", o.GateUpBias, Vector, 1, up.Experts*up.Rows)
		}
		if o.DownBias != NoWeight {
			c.weight("DownBias", o.DownBias, Vector, 1, down.Experts*down.Rows)
		}
	case Conv:
		k := c.state(o.Class, o.Layer)
		x := c.value("X", o.X, f32, PerToken, k.ConvCols)
		c.value("Y", o.Y, f32, PerToken, x.Cols)
		c.weight("W", o.W, Vector, 1, x.Cols*o.Kernel)
		c.require(o.Kernel > 1 && k.ConvRows >= o.Kernel-1, "a state of %d rows for a kernel of %d", k.ConvRows, o.Kernel)
		if o.Biased {
			c.weight("Bias", o.Bias, Vector, 1, x.Cols)
		}
	case DeltaNet:
		k := c.state(o.Class, o.Layer)
		c.require(o.KeyHeads > 0 && o.ValueHeads > 0 && o.ValueHeads%o.KeyHeads == 0, "%d value heads, %d key heads", o.ValueHeads, o.KeyHeads)
		c.require(k.Heads == o.ValueHeads && k.Rows == o.KeyDim && k.Cols == o.ValueDim, "a state of %d×%d×%d", k.Heads, k.Rows, k.Cols)
		c.value("QKV", o.QKV, f32, PerToken, 2*o.KeyHeads*o.KeyDim+o.ValueHeads*o.ValueDim)
		c.value("BA", o.BA, f32, PerToken, 2*o.ValueHeads)
		c.value("Y", o.Y, f32, PerToken, o.ValueHeads*o.ValueDim)
		c.weight("ALog", o.ALog, Vector, 1, o.ValueHeads)
		c.weight("DtBias", o.DtBias, Vector, 1, o.ValueHeads)
	case Mamba2:
		k := c.state(o.Class, o.Layer)
		c.require(k.Heads == o.Heads && k.Rows == o.HeadDim && k.Cols == o.StateDim, "a state of %d×%d×%d", k.Heads, k.Rows, k.Cols)
		c.value("X", o.X, f32, PerToken, o.Heads*o.HeadDim+2*o.StateDim)
		c.value("Dt", o.Dt, f32, PerToken, o.Heads)
		c.value("Y", o.Y, f32, PerToken, o.Heads*o.HeadDim)
		for name, w := range map[string]WeightID{"ALog": o.ALog, "D": o.D, "DtBias": o.DtBias} {
			c.weight(name, w, Vector, 1, o.Heads)
		}
	}
}

// scores checks how o compares and weighs experts.
func (c *checker) scores(o Route, experts int) {
	c.require(o.Score <= Logit, "score %d", o.Score)
	c.require(o.Score != Logit || !o.Normalize, "logits divided by their sum")
	c.require(o.Score != SelectedSoftmax || !o.Corrected && o.Groups <= 1 && !o.Normalize, "a softmax over selected experts with a correction, groups or a sum")
	c.require(o.Factor >= 0, "a factor of %g", o.Factor)
	if o.Corrected {
		c.weight("Correction", o.Correction, Vector, 1, experts)
	}
	if o.Groups == 0 {
		c.require(o.TopGroups == 0, "the best %d of no groups", o.TopGroups)
		return
	}
	c.require(o.Groups > 0 && o.Groups <= MaxGroups && experts%o.Groups == 0 && experts >= 2*o.Groups, "%d groups of %d experts", o.Groups, experts)
	c.require(o.TopGroups > 0 && o.TopGroups <= o.Groups, "the best %d of %d groups", o.TopGroups, o.Groups)
	c.require(o.GroupTop >= 0 && o.GroupTop <= 2, "groups compared by %d experts", o.GroupTop)
	c.require(o.Top*o.Groups <= o.TopGroups*experts, "%d experts of %d in %d of %d groups", o.Top, experts, o.TopGroups, o.Groups)
}

// state checks the class of a recurrent op and returns its state.
func (c *checker) state(class, layer int) StateShape {
	k := c.class(class, layer)
	if k.State == nil {
		c.fail("class %s holds no recurrent state", k.Name)
		return StateShape{}
	}
	c.require(!k.Snapshot, "class %s holds snapshots, not the states themselves", k.Name)
	if i := c.p.Snapshots(class); i >= 0 {
		s, t := *k.State, c.p.Classes[i].State
		s.Copies = 1
		c.require(t != nil && s == *t && c.p.Classes[i].Layers == k.Layers && c.p.Classes[i].MaxPages == SnapshotEntries,
			"class %s holds no snapshots of class %s", c.p.Classes[i].Name, k.Name)
	}
	return *k.State
}

func (c *checker) attention(op Op) {
	switch o := op.(type) {
	case Angles:
		y := c.value("Y", o.Y, kernels.F32, c.draftRows(o.Draft), 0)
		parts := 2
		if o.Grid {
			parts = 4
			c.value("Across", o.Across, kernels.I32, PerToken, 1)
			c.value("Down", o.Down, kernels.I32, PerToken, 1)
		}
		if e := o.Temperature; e != (Temperature{}) {
			c.require(e.Every > 0 && e.Every < 1<<31 && e.Offset >= 0 && e.Offset <= 1<<20 && e.Beta >= 0, "a temperature of %g every %d positions from %d", e.Beta, e.Every, e.Offset)
			c.require(!o.Grid && o.Sections == [3]int{}, "a temperature of tokens with several positions")
		}
		c.require(!o.Joined || o.Grid, "joined angles of one position")
		c.require(o.Sections == [3]int{} || c.p.Axes == 3 && !o.Grid, "sections of %v for tokens of %d positions", o.Sections, c.p.Axes)
		c.require(min(o.Sections[0], o.Sections[1], o.Sections[2]) >= 0, "sections of %v", o.Sections)
		c.weight("InvFreq", o.InvFreq, Vector, 1, y.Cols/parts)
		c.require(y.Cols%parts == 0, "Y has %d columns, which are no %d parts", y.Cols, parts)
	case Rope:
		c.rope(o)
	case Attention:
		c.attend(o)
	case StoreKV:
		k := c.class(o.Class, o.Layer)
		rows := c.draftRowsOf(o.Draft, k)
		key := k.HeadDim
		if c.like(o.K).Cols == k.KVHeads*k.keyDim() {
			key = k.keyDim()
		}
		c.value("K", o.K, k.Format, rows, k.KVHeads*key)
		c.value("V", o.V, k.Format, rows, k.KVHeads*k.HeadDim)
	default:
		c.latent(op)
	}
}

func (c *checker) rope(o Rope) {
	c.heads(o.Heads, cmp.Or(o.KVHeads, 1), o.HeadDim)
	rows := c.like(o.QKV).Rows
	c.require(rows != PerSample, "rows are sampled rows, not tokens or sequences")
	in := o.Heads + 2*o.KVHeads
	if o.Gated {
		in += o.Heads
		c.value("Gate", o.Gate, kernels.F32, rows, o.Heads*o.HeadDim)
	}
	if o.Shared {
		in -= o.KVHeads
	}
	c.activation("QKV", o.QKV, rows, in*o.HeadDim, kernels.BF16)
	c.require(o.Rotary >= 0 && o.Rotary%2 == 0 && o.Rotary <= o.HeadDim, "%d rotated dimensions of %d", o.Rotary, o.HeadDim)
	c.require(!o.Grid || o.Rotary%4 == 0, "%d rotated dimensions for two positions", o.Rotary)
	c.require(!o.Grid || !o.Interleaved, "neighbours rotated by two positions")
	if o.Rotary > 0 {
		c.value("Angles", o.Angles, kernels.F32, rows, o.Rotary)
	}
	if o.Tempered {
		c.value("QueryAngles", o.QueryAngles, kernels.F32, rows, o.Rotary)
		c.require(o.Rotary == o.HeadDim && !o.Grid && (o.Norm == nil || !o.Norm.After), "angles of Q that do not scale whole heads")
	}
	c.activation("Q", o.Q, rows, o.Heads*o.HeadDim, kernels.BF16, kernels.F16)
	if o.KVHeads == 0 {
		c.require(o.K == NoValue && o.V == NoValue && !o.Shared, "K or V without a key/value head")
	} else {
		f := c.like(o.K).Format
		c.require(storable(f), "K is %v; f32, f16, bf16 and 8-bit floats can be stored", f)
		c.value("K", o.K, f, rows, o.KVHeads*o.HeadDim)
		c.value("V", o.V, f, rows, o.KVHeads*o.HeadDim)
	}
	if o.Norm != nil {
		c.headNorm(o)
	}
}

func (c *checker) headNorm(o Rope) {
	n, q, k := o.Norm, o.HeadDim, o.HeadDim
	if n.Whole || n.Each {
		q, k = o.Heads*o.HeadDim, o.KVHeads*o.HeadDim
	}
	if n.Q != NoWeight {
		c.weight("Norm.Q", n.Q, Vector, 1, q)
	}
	if n.K != NoWeight && o.KVHeads > 0 {
		c.weight("Norm.K", n.K, Vector, 1, k)
	}
	c.require(!n.Whole || !o.Gated && !n.Plain && !n.After && !n.V, "a norm of all heads together takes neither gates, means, rotated heads nor V")
	c.require(!n.Whole || c.p.Shard.World <= 1, "a norm of all heads together on %d ranks: each has a part of the heads", c.p.Shard.World)
	c.require(!n.Plain || !n.After && !n.V, "LayerNorm of heads takes neither rotated heads nor V")
	c.require(!n.After || !o.Grid, "a norm of heads that two positions rotate")
}

func (c *checker) attend(o Attention) {
	c.heads(o.Heads, o.KVHeads, o.HeadDim)
	rows := c.draftRows(o.Draft)
	c.require(o.Draft == nil || !o.Bidirectional, "draft positions see no token after them")
	c.require(o.Softcap >= 0, "a cap of %g", o.Softcap)
	f := c.like(o.K).Format
	c.require(!o.Chunked || !o.Bidirectional && !o.Items, "a chunk with tokens that see later ones")
	if !o.Bidirectional {
		k := c.class(o.Class, o.Layer)
		c.draftRowsOf(o.Draft, k)
		f = k.Format
		c.require(k.KVHeads == o.KVHeads && k.HeadDim == o.HeadDim, "class %s has %d heads of %d, not %d of %d", k.Name, k.KVHeads, k.HeadDim, o.KVHeads, o.HeadDim)
		c.require(k.Window == 0 || o.Window > 0 && o.Window <= k.Window, "class %s keeps %d tokens, the op sees %d (0: all)", k.Name, k.Window, o.Window)
		c.require(o.Chunked == k.Chunked && (!o.Chunked || o.Window == k.Window && o.Window > 0), "class %s keeps a chunk: %t of %d, the op sees one: %t of %d", k.Name, k.Chunked, k.Window, o.Chunked, o.Window)
		c.require(o.Latent > 0 || (k.KeyDim == 0) == (o.Rebuild == nil), "class %s stores %d numbers of a key, the op rebuilds: %t", k.Name, k.keyDim(), o.Rebuild != nil)
		c.require(o.Latent <= 0 || k.KeyDim == o.Latent, "class %s stores %d numbers of a key, not %d behind its value", k.Name, k.keyDim(), o.Latent)
		if r := o.Rebuild; r != nil {
			c.require(r.Rotary == k.KeyDim && r.Rotary%2 == 0 && r.Rotary <= o.HeadDim && o.HeadDim%2 == 0, "pages hold %d numbers of a key of %d, %d are rotated", k.KeyDim, o.HeadDim, r.Rotary)
		}
	}
	key := o.HeadDim
	if o.Latent != 0 {
		c.require(o.Latent > 0 && o.KVHeads == 1 && o.Rebuild == nil && !o.Bidirectional && !o.Items && o.Window == 0 && !o.Sinked && o.Softcap == 0,
			"%d latent dimensions of keys with %d key/value heads, rebuilt keys, both directions, items, a window, sinks or a softcap", o.Latent, o.KVHeads)
		key = o.Latent
	}
	if o.Latent > 0 {
		c.value("Q", o.Q, kernels.F32, rows, o.Heads*(o.HeadDim+o.Latent))
	} else {
		c.activation("Q", o.Q, rows, o.Heads*o.HeadDim, kernels.BF16, kernels.F16)
	}
	c.value("Y", o.Y, kernels.F32, rows, o.Heads*o.HeadDim)
	c.value("K", o.K, f, rows, o.KVHeads*key)
	c.value("V", o.V, f, rows, o.KVHeads*o.HeadDim)
	if o.Sinked {
		c.weight("Sinks", o.Sinks, Vector, 1, o.Heads)
	}
	if o.Rebuild != nil {
		c.require(!o.Bidirectional, "keys that are not paged are whole")
		c.weight("Rebuild.Weight", o.Rebuild.Weight, Vector, 1, o.HeadDim)
	}
}

func storable(f kernels.Format) bool {
	switch f {
	case kernels.F32, kernels.F16, kernels.BF16, kernels.F8E4M3, kernels.F8E5M2:
		return true
	}
	return false
}
