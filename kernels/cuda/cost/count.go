package cost

import (
	"math"
	"strings"
	"sync"
	"unsafe"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// Counter counts the work of a step's launches, one after the other. Experts are reached uniformly and independently.
type Counter struct {
	Rows    []Row // of the step
	experts cuda.OrderArgs
	behind  bool // the launch before is a kernel
}

// argsOf returns a launch's arguments.
func argsOf[T any](l Launch) (a T, err error) {
	if n := int(unsafe.Sizeof(a)); len(l.Args) != n {
		return a, &UnknownKernelError{l.Kernel, "its arguments have another size"}
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&a)), len(l.Args)), l.Args)
	return a, nil
}

// Count returns the work of a launch. It fails with an *UnknownKernelError for a kernel without a rule.
func (c *Counter) Count(l Launch) (Work, error) {
	w := Work{Blocks: l.blocks(), Longest: 1}
	code, ok := CodeOf(l.Kernel)
	library := strings.HasSuffix(l.Kernel, "_cublaslt")
	if !ok && !library {
		return w, &UnknownKernelError{l.Kernel, "its machine code was not counted"}
	}
	w.Code, w.Dependent = code, c.behind && !library
	if w.Blocks == 0 {
		return w, nil
	}
	c.behind = !library
	var err error
	switch k := l.Kernel; {
	case library:
		err = c.library(l, &w)
	case strings.HasPrefix(k, "linear_pack_"), strings.HasPrefix(k, "glu_pack_"), strings.HasPrefix(k, "norm_pack_"), strings.HasPrefix(k, "store_pack_"), strings.HasPrefix(k, "chain_pack_"), strings.HasPrefix(k, "heads_pack_"):
		err = c.pack(l, &w)
	case k == "linear_bias":
		err = with(l, func(a cuda.LinearBiasArgs) { w.Values = 32 * float64(a.N) })
	case strings.HasPrefix(k, "linear_"):
		err = c.linear(l, &w)
	case strings.HasPrefix(k, "head_linear_"):
		err = c.headLinear(l, &w)
	case strings.HasPrefix(k, "experts_"), k == "route", k == "route_order":
		err = c.expert(l, &w)
	case k == "attention_join":
		err = with(l, func(j cuda.JoinArgs) {
			a := j.Attention
			n := float64(l.Blocks[0]) * float64(a.Heads) * float64(a.Pages.HeadDim)
			w.Values, w.Flops = n*(4*float64(a.Splits+1)-2*present(a.Packed)+4*present(j.Gate)), 2*n*float64(a.Splits)
			w.KV = besideBytes(j.Beside)
		})
	case strings.HasPrefix(k, "attention_"):
		err = c.attention(l, &w)
	case strings.HasPrefix(k, "conv_"), strings.HasPrefix(k, "delta"):
		err = c.state(l, &w)
	default:
		err = c.element(l, &w)
	}
	if err != nil {
		return w, err
	}
	if w.Issued == 0 {
		w.Issued = w.Flops
	}
	if w.Instructions > 0 { // of a loop that is no share of Issued
		return w, nil
	}
	code = w.Code
	w.Block = Block{(l.Threads + 31) / 32, sharedOf()[l.Kernel]}
	w.Warps = float64(w.Block.Warps)
	if code.Load.Bytes > 0 {
		w.Warps = max(1, w.Warps-loadingWarps)
	}
	warps := max(w.Blocks, w.Pieces) * w.Warps
	turns := 0.0 // of the loop, in all warps
	switch {
	case code.Ops > 0:
		turns = w.Issued / code.Ops
	case code.Loads > 0:
		turns = w.Bytes() / (32 * code.Loads)
	}
	if w.Warps > 0 {
		w.Turns = turns / w.Warps
	}
	w.Instructions = warps*code.Path + max(0, turns-warps)*code.Body
	if w.RowTurns > 0 {
		w.Instructions = warps * (code.Path + (w.RowTurns-1)*max(code.Body, code.Loops))
	}
	if code.Unit != Scalar {
		w.Instructions = min(w.Instructions, warps*code.Path+turns*code.Body)
	}
	if part := w.HalfTurns; part > 0 {
		around := func(c Code) float64 { return warps*(c.Path-c.Body) + turns*c.Body }
		w.Instructions += part * (around(w.Half) - around(code))
		w.HalfTurns, w.Issued = part*w.Turns, w.Issued*(1-part/2)
	}
	if w.LoadTurns == 0 {
		w.LoadTurns = loadTurns(l.Kernel, code.Load)
	}
	if w.LoadTurns > 0 {
		w.Instructions += w.Tiles * loadingWarps * (w.LoadTurns*code.Load.Body + code.Load.Around)
	}
	return w, nil
}

// loadingWarps are those of a block that load for the others, one warpgroup.
const loadingWarps = 4

// loadTurns returns the turns of a loading warp's loop for a tile of keys and values.
func loadTurns(kernel string, l Loading) float64 {
	if l.Bytes == 0 {
		return 0
	}
	keys, dims := wideTile(kernel)
	return 2 * float64(keys*dims) * bytesOf(kernel) / (32 * loadingWarps * l.Bytes)
}

var sharedOf = sync.OnceValue(func() map[string]int {
	out := map[string]int{}
	for _, k := range cuda.Catalogue() {
		out[k.Name] = k.Shared
	}
	return out
})

func with[T any](l Launch, f func(T)) error {
	a, err := argsOf[T](l)
	if err == nil {
		f(a)
	}
	return err
}

// formatOf returns the format in a kernel's name: of weights behind a prefix.
func formatOf(kernel, prefix string) (kernels.Format, bool) {
	name := strings.TrimPrefix(kernel, prefix)
	for end := len(name); end > 0; end = strings.LastIndexByte(name[:end], '_') {
		if f, ok := kernels.Parse(name[:end]); ok {
			return f, true
		}
	}
	return kernels.Invalid, false
}

// reached returns the experts that picks of them reach, and their rows in blocks of a size.
func (c *Counter) reached(picks, experts, block float64) (n, rows float64) {
	n = experts * (1 - math.Pow(1-1/experts, picks))
	return n, max(n*block, picks+n*(block-1)/2)
}

// linear counts a product, dense or of experts.
func (c *Counter) linear(l Launch, w *Work) error {
	a, err := productOf(l)
	f, ok := formatOf(l.Kernel, "linear_")
	if err != nil || !ok {
		return orUnknown(err, l)
	}
	in, out, rows := float64(a.In), float64(a.Out), float64(a.Rows)
	x := 2.0
	switch {
	case strings.Contains(l.Kernel, "_x8_"):
		x = 1
	case f == kernels.F32:
		x = 4
	}
	tile := tileOf(l.Kernel)
	elems, size := f.Block()
	each := scalesOf(a) + in*out*float64(size)/float64(elems)
	y := wide(a.YBF16) * out // bytes of a row
	if a.Gated != 0 {        // half of them, in 16 bits
		y = out
	}
	if a.GatedScales != 0 { // written, read and written in 8 bits
		y = out / 2 * (4 + 4 + 1)
	}
	if a.Gated != 0 {
		w.Code = w.Code.gated(piecesOf(l.Kernel, l, a))
	}
	if a.Experts == 0 {
		w.Weights, w.Values, w.Flops = each, rows*(x*in+y), 2*rows*in*out
		w.Issued = 2 * roundUp(rows, tile) * roundUp(in, 32) * roundUp(out, 16)
		w.Prefetched = prefetched(l, f, a)
		if a.Splits > 1 {
			w.Values += 8 * float64(a.Splits) * roundUp(rows, tile) * out
		}
		return nil
	}
	picks := float64(c.experts.Picks)
	n, placed := c.reached(picks, float64(c.experts.Experts), tile)
	w.Weights, w.Values, w.Flops = n*each, picks*(x*in+y), 2*picks*in*out
	w.Issued = 2 * placed * roundUp(in, 32) * roundUp(out, 16)
	if name, ok := strings.CutSuffix(l.Kernel, "_picks_wide"); ok {
		_, least := c.reached(picks, float64(c.experts.Experts), tile/2)
		walk(name, placed/tile, (placed-least)/(tile/2), a, w)
		return nil
	}
	w.Blocks *= min(1, placed/tile/float64(l.Blocks[0])) // the others have no rows
	return nil
}

// piecesOf returns the panels of 16 features that a warp of a product with many rows has, and the tiles of 8 rows for each: all tiles of a block in a
// kernel of warpgroups, else a fourth of them. Where blocks take tiles in turns, a warp has four pieces at a time (store_tile in linear_picks.cu).
func piecesOf(kernel string, l Launch, a cuda.LinearArgs) (panels, pieces float64) {
	if name, ok := strings.CutSuffix(kernel, "_picks_wide"); ok {
		p, _ := cuda.Linear{Kernel: name + "_wide"}.Picks()
		return 4 * math.Round(math.Ceil(float64(a.Out)/128)/float64(p.Blocks(int(a.Out), p.Rows, 1)[1])), 4
	}
	if pieces = tileOf(kernel) / 8; strings.Contains(kernel, "_wide") || strings.Contains(kernel, "_mid_") {
		return math.Round(math.Ceil(float64(a.Out)/128) / float64(l.Blocks[1])), pieces
	}
	return 4, pieces / 4
}

// walk counts a product of experts whose blocks of a fixed grid take tiles in turns (each_tile in linear_picks.cu), of some blocks of 128 rows, of
// which half have no more than 64 and multiply by 64: with the loop of the product's blocks of 64, where its format has those. A
// tile of 64 rows counts as half an item of the list that is dealt.
func walk(product string, rows, half float64, a cuda.LinearArgs, w *Work) {
	p, _ := cuda.Linear{Kernel: product + "_wide"}.Picks()
	strips := float64(p.Blocks(int(a.Out), p.Rows, 1)[1])
	items := (rows-half)*strips + half*math.Ceil(strips/2)
	grid := w.Blocks
	w.Blocks, w.Pieces, w.Tiles, w.Behind = min(grid, items), rows*strips, rows*strips, float64(p.Behind)
	w.Longest = max(1, math.Ceil(items/grid)*grid/items)
	w.LoadTurns = math.Ceil(float64(a.In) / float64(p.StageCols))
	w.Half, w.HalfTurns = w.Code, half/rows
	if mid, ok := CodeOf(product + "_mid_64"); ok {
		mid.Path = w.Code.Path - w.Code.Body + mid.Body // around its loop is the same
		w.Half = mid
	}
}

// productOf returns a product's arguments.
func productOf(l Launch) (cuda.LinearArgs, error) {
	if !strings.Contains(l.Kernel, "_picks_") {
		return argsOf[cuda.LinearArgs](l)
	}
	p, err := argsOf[cuda.PicksArgs](l)
	return p.Product, err
}

// prefetched returns the bytes of weights that the blocks of a product of one matrix load first and prefetch: Prefetch in
// linear.cuh, linear_tile.cuh (at least three steps), linear_mid.cu (at least eight) and linear_plain.cu. The first 296 blocks do.
func prefetched(l Launch, f kernels.Format, a cuda.LinearArgs) float64 {
	elems, size := f.Block()
	step := max(32, float64(elems)) // columns of a unit
	units := 0.0                    // of a row, for each split
	switch k := l.Kernel; {
	case strings.Contains(k, "_plain_"):
		step, units = 64*float64(elems)/float64(size), 8*3
		if strings.Contains(k, "_x8_") {
			units -= 8
		}
		if strings.HasSuffix(k, "_8") {
			units += 8
		}
	case strings.Contains(k, "_mid_"):
		units = 8
	case strings.HasSuffix(k, "_8"), strings.HasSuffix(k, "_16"):
		if units = 8 * 4; step > 32 {
			units = 8 * 2
		}
	case strings.HasSuffix(k, "_64"), strings.HasSuffix(k, "_tile"):
		if units = 3; step > 32 {
			units = 1
		}
	}
	const blocks = 296 // kFirstBlocks in device.cuh
	bytes := float64(a.In) * float64(a.Out) * float64(size) / float64(elems)
	return bytes * min(1, units*float64(max(1, a.Splits))*step/float64(a.In)) * min(1, blocks/l.blocks())
}

// scalesOf returns the bytes of a matrix's scales.
func scalesOf(a cuda.LinearArgs) float64 {
	if a.Scales == 0 {
		return 0
	}
	across := func(n, by int32) float64 { return float64((int64(n) + int64(by) - 1) / int64(max(1, by))) }
	return 4 * across(a.Out, a.ScaleRows) * across(a.In, a.ScaleCols)
}

// tileOf returns the rows of a block of a product.
func tileOf(kernel string) float64 {
	for suffix, rows := range map[string]float64{"_8": 8, "_16": 16, "_32": 32, "_64": 64, "_tile": 128, "_wide": 128} {
		if strings.HasSuffix(kernel, suffix) {
			return rows
		}
	}
	return 4
}

func (c *Counter) library(l Launch, w *Work) error {
	a, err := argsOf[cuda.LibraryArgs](l)
	f, ok := formatOf(l.Kernel, "linear_")
	if err != nil || !ok {
		return orUnknown(err, l)
	}
	in, out, rows, n := float64(a.In), float64(a.Out), float64(a.Rows), float64(f.Bytes(1))
	w.Weights, w.Values, w.Flops = n*in*out, rows*(n*in+wide(a.YBF16)*out), 2*rows*in*out
	w.Issued, w.Code.Unit = 2*roundUp(rows, cuda.LibraryUnit)*in*out, Warpgroup
	if n == 1 {
		w.Code.Unit = Group8
	}
	w.Blocks = 1 << 20 // the library takes tiles and splits that fill the GPU
	return nil
}

func (c *Counter) headLinear(l Launch, w *Work) error {
	a, err := argsOf[cuda.HeadLinearArgs](l)
	f, ok := formatOf(l.Kernel, "head_linear_")
	if err != nil || !ok {
		return orUnknown(err, l)
	}
	in, out, rows, heads := float64(a.In), float64(a.Out), float64(a.Rows), float64(l.Blocks[2])
	w.Weights, w.Values, w.Flops = heads*in*out*float64(f.Bytes(1)), 4*rows*heads*(in+out), 2*rows*heads*in*out
	w.Issued = 2 * heads * roundUp(rows, tileOf(l.Kernel)) * roundUp(in, 32) * roundUp(out, 16)
	return nil
}

// wide returns the bytes of an activation that is float32, or 16 bits with a flag or a Store.
func wide(flag int32) float64 {
	if flag != 0 {
		return 2
	}
	return 4
}

// present returns 1 for an operand that a launch has, 0 for none.
func present(p cuda.Ptr) float64 {
	if p == 0 {
		return 0
	}
	return 1
}

// plainOf returns what a norm writes of its rows besides packing them: of a number of 4 bytes.
func plainOf(a cuda.NormPackArgs) float64 {
	if a.PlainWords != 0 {
		return 0.5
	}
	return present(a.Plain)
}

// pack counts rounding rows for a product, gating or normalising them first.
func (c *Counter) pack(l Launch, w *Work) error {
	var p cuda.PackArgs
	var err error
	reads, kept, flops := 1.0, 0.0, 1.0 // of X, for each packed number
	narrow := 0.0                       // of reads, those that may be bf16
	switch {
	case strings.HasPrefix(l.Kernel, "glu_"):
		reads, narrow, flops = 2, 2, 7
		err = with(l, func(a cuda.GLUPackArgs) { p = a.Pack })
	case strings.HasPrefix(l.Kernel, "norm_"):
		narrow, flops = 1, 5
		err = with(l, func(a cuda.NormPackArgs) {
			p, reads, kept = a.Pack, 1+present(a.Residual), present(a.Residual)+plainOf(a)
			w.KV = besideBytes(a.Beside)
		})
	case strings.HasPrefix(l.Kernel, "chain_"):
		err = with(l, func(a cuda.ChainPackArgs) {
			p, reads, narrow, kept, flops = a.Norm.Pack, 2, 1, 1+plainOf(a.Norm), 6
			w.KV = besideBytes(a.Norm.Beside)
			if a.Kinds&cuda.ChainJoined != 0 { // X and Other are read twice
				reads, flops = reads+3, flops+9
			}
			if a.Kinds&cuda.ChainPost != 0 { // X is read twice, the joined X is written
				reads, kept, flops = reads+1, kept+present(cuda.Ptr(a.Kinds&cuda.ChainJoined)), flops+4
			}
		})
	case strings.HasPrefix(l.Kernel, "heads_"):
		err = with(l, func(a cuda.HeadsPackArgs) { p, reads, flops = a.Pack, 2+present(a.Gate), 6+4*present(a.Gate) })
	case strings.HasPrefix(l.Kernel, "store_"):
		err = with(l, func(a cuda.StorePackArgs) {
			p, reads, flops = a.Pack, 1+present(a.Gate), 1+4*present(a.Gate)
			w.KV = besideBytes(a.Beside)
		})
	default:
		err = with(l, func(a cuda.PackArgs) { p = a })
	}
	rows := float64(p.Rows)
	if c.experts.Experts > 0 && p.Rows == c.experts.Blocks*c.experts.Block && (p.Order != 0 || !strings.HasPrefix(l.Kernel, "norm_")) {
		rows = float64(c.experts.Picks)
	}
	if from, _, _ := strings.Cut(l.Kernel, "_"); from == "norm" || from == "chain" || from == "heads" || strings.HasSuffix(l.Kernel, "8") || strings.HasSuffix(l.Kernel, "e4m3") {
		w.RowTurns = math.Ceil(math.Ceil(float64(p.In)/32) / (8 * float64(l.Threads/32))) // each_step in rows.cuh
	}
	if p.Group > 0 {
		w.Code = w.Code.byGroup()
	}
	n := rows * float64(p.In)
	kept += w.KV / 4 / max(1, n)
	to := 2.0
	if f, ok := formatOf(l.Kernel[strings.Index(l.Kernel, "pack_"):], "pack_"); ok {
		to = float64(f.Bytes(1))
	}
	w.Values, w.Flops = n*(4*(reads-narrow)+wide(p.XBF16)*narrow+4*kept+to), n*flops
	return err
}

// expert counts routing, sorting and the weighted sum.
func (c *Counter) expert(l Launch, w *Work) error {
	switch l.Kernel {
	case "route":
		return with(l, func(a cuda.RouteArgs) {
			w.Values, w.Flops = 4*float64(a.Rows)*float64(a.Experts+2*a.Top), float64(a.Rows*a.Experts)*float64(a.Top)
		})
	case "route_order":
		return with(l, func(a cuda.RouteOrderArgs) {
			c.experts = a.Order
			w.Values = 4*float64(a.Route.Rows)*float64(a.Route.Experts+2*a.Route.Top) + 20*float64(a.Order.Picks)
			w.Flops = float64(a.Route.Rows*a.Route.Experts) * float64(a.Route.Top)
		})
	case "experts_order":
		return with(l, func(a cuda.OrderArgs) {
			c.experts = a
			w.Values = 20 * float64(a.Picks)
		})
	case "experts_combine":
		return with(l, func(a cuda.CombineArgs) {
			n := float64(l.Blocks[0]) * float64(a.Cols)
			w.Values, w.Flops = n*(wide(a.XBF16)*float64(a.Top)+wide(a.YBF16)), 2*n*float64(a.Top)
			c.experts = cuda.OrderArgs{}
		})
	}
	return with(l, func(a cuda.ExpertsArgs) {
		in, out, picks := float64(a.In), float64(a.Out), float64(c.experts.Picks)
		n, placed := c.reached(picks, float64(max(1, c.experts.Experts)), tileOf(l.Kernel))
		w.Weights, w.Values, w.Flops, w.Issued = 4*n*in*out, 4*picks*(in+out), 2*picks*in*out, 2*placed*in*out
	})
}

// besideBytes returns the bytes of keys and values that a launch stores.
func besideBytes(b cuda.StoreBeside) float64 {
	if b.Across == 0 {
		return 0
	}
	return storedBytes(b.Store, float64(b.Bytes))
}

func orUnknown(err error, l Launch) error {
	if err != nil {
		return err
	}
	return &UnknownKernelError{l.Kernel, "no format is in its name"}
}

func roundUp(x, to float64) float64 {
	n := int64((x + to - 1) / to)
	return float64(n) * to
}
