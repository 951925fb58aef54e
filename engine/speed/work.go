package speed

import "vapp.dev/engine/backend"

// Work is the work of an op whose time depends on the number of its elements alone: Each for
// each of its Rows. Op is the op whose rate it has.
type Work struct {
	Op   string
	Rows backend.Rows
	Each int
}

// ops lists the ops that rates have: those of WorkOf, and experts.
var ops = []string{
	"tokens", "store_tokens", "embed", "angles", "norm", "rope", "store_kv", "glu", "add", "gate", "activate", "softcap", "concat", "route",
	"conv", "delta_net", "gather", "sample", "experts",
}

// WorkOf returns the work of an op of p. ok is false for products, experts and attention, and for ops
// that no CPU runs.
func WorkOf(p *backend.Program, op backend.Op) (w Work, ok bool) {
	on := func(v backend.Value, each int) (Work, bool) {
		return Work{backend.OpName(op), p.Values[v].Rows, each}, true
	}
	cols := func(v backend.Value) int { return p.Values[v].Cols }
	as := func(name string, v backend.Value, each int) (Work, bool) {
		return Work{name, p.Values[v].Rows, each}, true
	}
	switch o := op.(type) {
	case backend.Tokens:
		return on(o.Out, 1)
	case backend.StoreTokens:
		return on(o.Ids, 1)
	case backend.Embed:
		return on(o.Y, cols(o.Y))
	case backend.Angles:
		return on(o.Y, cols(o.Y))
	case backend.Norm:
		return on(o.Y, cols(o.Y))
	case backend.Rope:
		return on(o.QKV, (o.Heads+2*o.KVHeads)*o.HeadDim)
	case backend.LatentRope:
		return as("rope", o.KV, (o.Heads+1)*o.Rotary+2*o.Rank)
	case backend.StoreKV:
		return on(o.K, cols(o.K)+cols(o.V))
	case backend.GLU:
		return on(o.Y, cols(o.Y))
	case backend.Add:
		return on(o.Into, cols(o.Into))
	case backend.Gate:
		return on(o.X, cols(o.X))
	case backend.Activate:
		return on(o.X, cols(o.X))
	case backend.Softcap:
		return on(o.X, cols(o.X))
	case backend.Reorder:
		return as("concat", o.Y, cols(o.Y))
	case backend.Concat:
		return on(o.Y, cols(o.Y))
	case backend.Route:
		return on(o.Logits, cols(o.Logits))
	case backend.Conv:
		return on(o.X, cols(o.X)*o.Kernel)
	case backend.DeltaNet:
		return on(o.QKV, o.ValueHeads*o.KeyDim*o.ValueDim)
	case backend.Gather:
		return on(o.Y, cols(o.Y))
	case backend.GatherLast:
		return as("gather", o.Y, cols(o.Y))
	case backend.GatherAccepted:
		return as("gather", o.Y, cols(o.Y))
	case backend.OutputRows:
		return as("gather", o.X, cols(o.X))
	case backend.Sample:
		return on(o.Logits, p.Vocab)
	case backend.Propose:
		return as("sample", o.Logits, p.Vocab)
	case backend.DraftInput:
		return as("tokens", o.Out, 1)
	case backend.Verify:
		return as("tokens", o.Ids, 1)
	}
	return towerWork(p, op)
}

// towerWork is WorkOf for the ops of vision towers, which have the rates of ops that read and write
// as much.
func towerWork(p *backend.Program, op backend.Op) (w Work, ok bool) {
	as := func(name string, v backend.Value, times int) (Work, bool) {
		return Work{name, p.Values[v].Rows, times * p.Values[v].Cols}, true
	}
	switch o := op.(type) {
	case backend.Patches:
		return as("embed", o.Pixels, 1)
	case backend.AvgPool:
		return as("add", o.X, 1)
	case backend.Standardize:
		return as("add", o.X, 1)
	case backend.EncoderOutput:
		return as("embed", o.X, 1)
	case backend.Resample:
		return as("add", o.X, 4) // of four entries of the grid
	case backend.Join:
		return as("concat", o.Y, 1)
	}
	return Work{}, false
}
