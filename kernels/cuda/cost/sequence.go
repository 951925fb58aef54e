package cost

import (
	"strconv"
	"strings"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// span returns how many positions before end the tokens from position from on see, together.
func span(from, end int, a cuda.AttentionArgs) int {
	switch window := int(a.Window); {
	case a.Bidirectional != 0 || window == 0:
		return end
	case a.Pages.Chunked != 0:
		return end - from/window*window
	default:
		return min(end, end-from-1+window)
	}
}

// bytesOf returns the bytes of a number of keys and values by the name of a kernel.
func bytesOf(kernel string) float64 {
	switch {
	case strings.Contains(kernel, "_e4m3"), strings.Contains(kernel, "_e5m2"):
		return 1
	case strings.Contains(kernel, "_f32"):
		return 4
	}
	return 2
}

// wideTile returns the keys of a tile of a kernel of attention_wide.cu, attention_F_DIMS_wide, and their dimensions.
func wideTile(kernel string) (keys, dims int) {
	name := strings.TrimSuffix(kernel, "_wide")
	dims, _ = strconv.Atoi(name[strings.LastIndex(name, "_")+1:])
	if dims > 128 {
		return 64, dims
	}
	return 128, dims
}

// attention counts the blocks of rows of each sequence. A block reads what its rows see; what several blocks of a
// sequence read comes from memory once.
func (c *Counter) attention(l Launch, w *Work) error {
	a, err := argsOf[cuda.AttentionArgs](l)
	if err != nil {
		return err
	}
	tile, keys, twice := 64, 64, 1.0
	switch {
	case strings.HasSuffix(l.Kernel, "_wide"):
		tile = 128
		if keys, _ = wideTile(l.Kernel); strings.HasSuffix(l.Kernel, "_512_wide") { // two warpgroups score the same 64 rows
			tile, twice = 64, 2
		}
	case strings.HasSuffix(l.Kernel, "_few"):
		tile = 16
	case strings.HasSuffix(l.Kernel, "_f32"):
		tile, keys = 8, 16
	}
	heads, kv := int(a.Heads), max(1, int(a.Pages.KVHeads))
	group, splits := heads/kv, max(1, int(a.Splits))
	k, v := float64(a.Pages.HeadDim+a.Latent), float64(a.Pages.HeadDim)
	stored := float64(a.Pages.KeyDim) + v
	if a.Latent > 0 {
		stored = k
	}
	parts := max(1, l.Blocks[1]/kv)
	w.Blocks = 0
	longest, tokens := 0.0, 0
	issued := 2 * float64(tile) * (k*twice + v/float64(parts)) * float64(keys) // for a tile of keys
	for _, r := range c.Rows {
		if p := l.Pieces; p.Rows > 0 && (r.Count < p.From || r.Count > p.To) {
			continue // another launch takes it
		}
		tokens += r.Count
		end := r.From + r.Count
		w.KV += float64(span(r.From, end, a)) * float64(kv) * stored * bytesOf(l.Kernel)
		for p := range r.Count { // pairs of a token and a position
			w.Flops += 2 * float64(heads) * (k + v) * float64(span(r.From+p, r.From+p+1, a))
		}
		if l.Pieces.Rows > 0 {
			continue
		}
		each := max(1, tile/group) // tokens of a block
		for p := 0; p < r.Count; p += each {
			last := min(r.Count, p+each)
			tiles := (span(r.From+p, r.From+last, a) + keys - 1) / keys
			busy := min(splits, tiles)
			w.Blocks += float64(kv * parts * busy)
			w.Issued += float64(kv*parts*tiles) * issued
			w.Tiles += float64(kv * parts * tiles)
			longest = max(longest, float64((tiles+busy-1)/busy)*issued)
		}
	}
	partial := 0.0 // bytes of the results of splits, written once and read once
	if l.Pieces.Rows > 0 {
		partial = c.pieces(l, keys, w)
		w.Tiles = w.Issued * float64(kv*parts)
		w.Issued *= float64(kv*parts) * issued
		w.Blocks, w.Pieces, partial = w.Blocks*float64(kv*parts), w.Pieces*float64(kv*parts), 2*partial*float64(kv)*(v+2)*4
	} else if w.Issued > 0 {
		w.Longest = max(1, longest*w.Blocks/w.Issued)
	}
	w.Values = float64(tokens)*float64(heads)*(wide(a.QStored)*k+4*v) + partial
	if splits > 1 {
		w.Values += 4 * float64(tokens) * float64(heads*splits) * (v + 2)
	}
	return nil
}

// pieces counts the pieces of a launch's list as the host deals them to blocks: Issued and Longest in tiles of keys, the blocks
// that have work, and the pieces, for one KV head. It returns the partial rows, for one KV head.
func (c *Counter) pieces(l Launch, keys int, w *Work) (partial float64) {
	p, tokens := l.Pieces, 0
	for _, r := range c.Rows {
		tokens += r.Count
	}
	list := make([]int32, p.Bytes(tokens, len(c.Rows))/4)
	if _, ok := new(cuda.AttentionLister).Write(p, list, len(c.Rows), func(s int) (int, int) { return c.Rows[s].From, c.Rows[s].Count }); !ok {
		return 0 // Bytes is enough for every step
	}
	tiles := make([]float64, min(l.Blocks[0], int(list[0])))
	for i, t := range cuda.PiecesOf(list) {
		r := c.Rows[t.Seq]
		from, to := p.Range(t, r.From, r.Count)
		n := float64((to+keys-1)/keys - from/keys)
		tiles[i%len(tiles)] += n
		w.Issued += n
		if t.Splits > 1 {
			partial += float64(min(p.Rows, r.Count*p.Group-t.Block*p.Rows))
		}
	}
	w.Blocks, w.Pieces = float64(len(tiles)), float64(list[0])
	for _, n := range tiles {
		w.Longest = max(w.Longest, n*w.Blocks/w.Issued)
	}
	return partial
}

// state counts layers with recurrent states, which are read and written once for each sequence.
func (c *Counter) state(l Launch, w *Work) error {
	tokens, long, few, chunks := 0.0, 0.0, 0.0, 0.0
	seqs := float64(len(c.Rows))
	longSeqs := 0.0
	for _, r := range c.Rows {
		if n := float64(r.Count); r.Count >= cuda.DeltaLeast {
			long, longSeqs = long+n, longSeqs+1
			chunks += float64((r.From+r.Count-1)/cuda.DeltaChunk - r.From/cuda.DeltaChunk + 1)
		} else {
			few += n
		}
		tokens += float64(r.Count)
	}
	if strings.HasPrefix(l.Kernel, "conv_") {
		return with(l, func(a cuda.ConvArgs) {
			cols := float64(a.States.Cols)
			w.Blocks = 0
			for _, r := range c.Rows {
				w.Blocks += float64(l.Blocks[0] * min(l.Blocks[2], (r.Count+cuda.ConvRun-1)/cuda.ConvRun))
			}
			w.Values, w.Flops, w.KV = 8*tokens*cols, 2*tokens*cols*float64(a.Kernel), 2*seqs*float64(a.States.InputBytes)
		})
	}
	return with(l, func(a cuda.DeltaArgs) {
		keys, values, heads := float64(a.KeyDim), float64(a.ValueDim), float64(a.ValueHeads)
		row := 4 * (2*float64(a.KeyHeads)*keys + 2*heads*values)
		switch {
		case l.Kernel == "delta_chunks":
			// Scores for each key head, then the inverses of its value heads: by warp, 10 and 16 products of blocks of 16 in three parts.
			keyHeads, block := float64(a.KeyHeads), 3*2*2*16*8*16.0
			w.Values, w.Flops = long*(keyHeads*16*keys+heads*516), long*(keyHeads*256*keys+heads*4096)
			w.Issued, w.Blocks = chunks*block*(keyHeads*2*10*8+heads*16), chunks*keyHeads
			w.Instructions = 4 * chunks * (keyHeads*w.Code.Path + (heads-keyHeads)*w.Code.Body)
		case l.Kernel == "delta_prompt":
			// K·S, Q·S and the state's update of 64 tokens by 128 keys, and two triangles, by 16 columns in three parts.
			columns := roundUp(values, cuda.DeltaColumns)
			w.Values, w.Flops = long*heads*(columns/cuda.DeltaColumns*(8*keys+512)+8*values), long*heads*values*(6*keys+256)
			w.Issued = chunks * heads * columns * 3 * 2 * (3*64*128 + 2*10*16*16)
			w.KV = 2 * longSeqs * float64(a.States.MatrixBytes)
			w.Blocks *= longSeqs / seqs
		default:
			n, s := tokens, seqs
			if a.Least > 0 {
				n, s = few, seqs-longSeqs
				w.Blocks *= s / seqs
			}
			w.Values, w.Flops, w.KV = n*row, 8*n*heads*keys*values, 2*s*float64(a.States.MatrixBytes)
		}
	})
}

// element counts kernels that work on each number or row separately.
func (c *Counter) element(l Launch, w *Work) error {
	rows := float64(l.Blocks[0])
	name, rest, _ := strings.Cut(l.Kernel, "_")
	set := func(values, flops float64) { w.Values, w.Flops = values, flops }
	switch {
	case strings.HasPrefix(l.Kernel, "embed_packed_"):
		return with(l, func(a cuda.EmbedPackedArgs) { set(6*rows*float64(a.Table.In), rows*float64(a.Table.In)) })
	case name == "embed":
		f, _ := kernels.Parse(rest)
		return with(l, func(a cuda.EmbedArgs) { set((4+float64(f.Bytes(1)))*rows*float64(a.Cols), rows*float64(a.Cols)) })
	case name == "gather":
		return with(l, func(a cuda.GatherArgs) { set(8*rows*float64(a.Cols), 0) })
	case l.Kernel == "tokens":
		return with(l, func(a cuda.TokensArgs) { set(12*float64(a.Rows), 0) })
	case l.Kernel == "store_tokens":
		return with(l, func(a cuda.StoreArgs) { set(8*float64(a.Rows), 0) })
	case name == "norm":
		return with(l, func(a cuda.NormArgs) {
			n := rows * float64(a.Segment)
			set((4+wide(a.XBF16))*n, 4*n)
			if a.Residual != 0 { // read and written
				w.Values += 8 * n
			}
		})
	case name == "add":
		return with(l, func(a cuda.AddArgs) { set((8+wide(a.XBF16))*float64(a.N), 2*float64(a.N)) })
	case name == "concat", name == "reorder":
		return with(l, func(a cuda.ConcatArgs) { set(8*rows*float64(a.NA+a.NB), 0) })
	case name == "angles":
		return with(l, func(a cuda.AnglesArgs) { set(8*rows*float64(a.Half), 2*rows*float64(a.Half)) })
	case l.Kernel == "glu", l.Kernel == "glu4":
		return with(l, func(a cuda.GLUArgs) { n := float64(a.Rows) * float64(a.Cols); set((4+2*wide(a.XBF16))*n, 6*n) })
	case name == "activate", name == "softcap", name == "gate":
		return with(l, func(a cuda.ElementsArgs) {
			set(8*float64(a.N), 4*float64(a.N))
			if a.Gate != 0 && a.Cols == 0 {
				w.Values += 4 * float64(a.N)
			}
		})
	case name == "rope":
		return with(l, func(a cuda.RopeArgs) {
			n := rows * float64(a.HeadDim)
			x := wide(a.XBF16)
			set(n*((x+wide(a.QStored))*float64(a.Heads)+2*(x+bytesOf(l.Kernel))*float64(a.KVHeads)), 6*n*float64(a.Heads))
		})
	case strings.HasPrefix(l.Kernel, "latent_rope_"):
		return with(l, func(a cuda.LatentRopeArgs) {
			set((8*float64(a.Heads*a.Rotary)+(4+bytesOf(l.Kernel))*float64(a.Rank+a.Rotary))*rows, (6*float64(a.Heads*a.Rotary)+4*float64(a.Rank))*rows)
		})
	case strings.HasPrefix(l.Kernel, "store_kv_"):
		bytes := map[string]float64{"kv_8": 1, "kv_16": 2, "kv_32": 4}[rest]
		return with(l, func(a cuda.StoreArgs) {
			w.KV = storedBytes(a, bytes)
			set(w.KV, 0)
		})
	case name == "sample":
		return with(l, func(a cuda.SampleArgs) {
			set(4*float64(a.Vocab)*float64(l.Blocks[1]), float64(a.Vocab)*float64(l.Blocks[1]))
		})
	case name == "propose":
		return with(l, func(a cuda.ProposeArgs) { set(4*rows*float64(a.Vocab), 0) })
	case name == "drafted", name == "verify":
		return with(l, func(a cuda.DraftArgs) { set(16*float64(a.Tokens), 0) })
	case name == "ahead":
		return with(l, func(a cuda.AheadArgs) { set(8*float64(a.Seqs)*float64(1+a.Width), 0) })
	}
	return &UnknownKernelError{l.Kernel, "there is no rule for its work"}
}

// storedBytes returns the bytes of keys and values of numbers of some bytes that are stored.
func storedBytes(a cuda.StoreArgs, bytes float64) float64 {
	return bytes * float64(a.Rows) * float64(a.Pages.KVHeads) * float64(a.Pages.HeadDim+a.Pages.KeyDim)
}
