package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/tokenizer"
	"vapp.dev/schema"
)

// Bounds of memory that cannot be derived. The text library was measured on x86-64 Linux by its
// resident memory beyond the file's text:
//   - Reading a tokenizer.json peaks at 1.0 KiB a token (SmolLM2, 49,152 tokens, 48,900 merges;
//     Qwen's size, 151,936 of each) to 1.9 KiB (Llama 3's size, 128,256 tokens, 277,016 merges).
//   - 64 threads that encode and decode at once leave 37 to 72 MiB beyond it, less than the peak
//     has freed by then.
//   - Encoding 64 KiB of text that cannot be divided, the longest such text that is encoded,
//     takes 2 to 14 MiB (SmolLM2: digits 10, é 11, spaces 2; a vocabulary of bytes: letters 10,
//     digits 14). A window of 8 KiB takes at most 4 MiB. 2 MiB of digits encoded at once took
//     625 MiB.
const (
	textBase     = 32 << 20 // caches and allocator arenas of threads
	textPerToken = 2 << 10  // for each token of the vocabulary

	// TextWorkers is how many windows of text are encoded, and how many chat templates are
	// rendered, at the same time.
	TextWorkers = 2
	// TextRender is the memory limit of rendering a template, beyond its conversation.
	TextRender    = 16 << 20
	textPerWorker = 2 * TextRender

	grammarBase   = 64 << 20  // the largest grammar that passes its trial (package tokenizer)
	grammarPerSeq = 256 << 10 // the state of a schema of 4 KiB takes 0.1 to 0.6 MiB
)

// GrammarBytes returns the memory of compiled grammars and of the grammar states of replies, for
// a server that runs that many sequences at once.
func GrammarBytes(seqs int) int64 { return add(grammarBase, mul(grammarPerSeq, int64(seqs))) }

// Bounds of the process itself. GOMEMLIMIT enforces that of the Go heap.
const (
	heapBase    = 80 << 20  // static data, routes, metrics, a queue of prompts
	heapPerSeq  = 256 << 10 // goroutines, buffers and tokens of a running sequence
	heapPerPage = 384       // bookkeeping of a KV page and its token ids
	heapPerWord = 512       // for each token of the vocabulary: tokenizer.json as text, the token's bytes
	binaryPages = 64 << 20  // resident pages of the binary and its libraries
	perThread   = 512 << 10 // stack and allocator of a thread outside Go
	hostThreads = 64        // threads on a machine with a GPU; the catalogue does not know its cores
)

// Request bodies. The largest body is in memory once as received and three times while it is
// decoded, rendered and encoded. bodyBase is for small bodies and for the Go values of 131,072
// JSON values (appliance/api).
const (
	bodyTimes = 4
	bodyBase  = 32 << 20
)

// bodies returns the memory limit of request bodies.
func (w resolved) bodies() int64 {
	return add(bodyBase, mul(bodyTimes, int64(w.in.Profile.Serve.Limits.MaxBodyBytes)))
}

// kvEventsHeap is what KV events may take: batches kept for replay, those that wait for
// subscribers, and those on their way (appliance/kvevents).
const kvEventsHeap = 160 << 20

// tracesHeap is what spans may take that wait for the collector (appliance/traces).
const tracesHeap = 32 << 20

// Names of the ledger's lines that are not arenas.
const (
	textItem    = "text"
	childItem   = "children"
	runtimeItem = "runtime"
	reserveItem = "reserve"
	mappedItem  = "mapped"
	stagingItem = "staging" // of backend cuda
	heapPart    = "go heap"
)

// ledger returns the ledger of a server with these options.
func (w resolved) ledger(o engine.Options, a *engine.Account) Ledger {
	r := a.Reservation
	l := Ledger{
		weightItem(r, w.in.Model.Source.Build.LoRA),
		{Name: backend.KV.String(), Bytes: r.Arenas[backend.KV], Basis: Exact, Rule: kvRule(o, a)},
		{Name: backend.Scratch.String(), Bytes: r.Arenas[backend.Scratch], Basis: Exact,
			Rule: fmt.Sprintf("peak of a step of %s tokens, %s sequences", Group(int64(o.MaxNumBatchedTokens)), Group(int64(o.MaxNumSeqs)))},
		workspaceItem(o, a),
		{Name: backend.StepIO.String(), Bytes: r.Arenas[backend.StepIO], Basis: Exact, Rule: "step buffers, " + setsOf(r.Step) + ": ids, page tables, masks"},
	}
	l = append(l, encoderItems(r)...)
	l = append(l, overheads(a)...)
	process := w.process(o, a)
	if c := w.collectives(a); len(c) > 0 {
		l, process = append(l, c[0]), append(process, c[1:]...)
	}
	if !w.onGPU() {
		l = append(l, process...)
	}
	if w.reserve > 0 {
		l = append(l, Item{Name: reserveItem, Bytes: w.reserve, Basis: Held, Rule: "memory.reserve, left to others"})
	}
	mapped := Item{Name: mappedItem, Bytes: w.mappedBytes(), Basis: Apart, Rule: "the model's files, while loading; dropped after packing"}
	if w.onGPU() {
		for i := range process {
			process[i].Basis = Host
		}
		l, mapped.Basis = append(l, process...), Host
		if w.in.Profile.Serve.Sleep {
			l = append(l, Item{Name: "sleep", Bytes: r.Arenas[backend.Weights], Basis: Host, Rule: "the weights, while the model sleeps at level 1"})
		}
	}
	if mapped.Bytes > 0 {
		l = append(l, mapped)
	}
	if it, kept := w.cache(o, a); kept {
		l = append(l, it)
	}
	return l
}

// encoderItems returns the lines of the encoder's input and of its cache; none without an encoder.
func encoderItems(r backend.Reservation) []Item {
	e := r.Encoder
	if e == (backend.EncoderShape{}) {
		return nil
	}
	return []Item{
		{Name: backend.Item.String(), Bytes: r.Arenas[backend.Item], Basis: Exact, Rule: fmt.Sprintf("the largest item: %s patches of %s numbers, and their places", Group(int64(e.Patches)), Group(int64(e.Cols)))},
		{Name: backend.Encoded.String(), Bytes: r.Arenas[backend.Encoded], Basis: Exact, Rule: fmt.Sprintf("cache of %s encoded rows of %s f32", Group(int64(e.Rows)), Group(int64(e.Width)))},
	}
}

// process returns the lines that are in the machine's memory with every backend.
func (w resolved) process(o engine.Options, a *engine.Account) []Item {
	out := []Item{w.text(o), children(), w.runtime(o, a)}
	if rankOf(w.in.Model) > 0 {
		out = []Item{w.followerRuntime(o)}
	}
	if n := a.Reservation.Arenas[backend.Swap]; n > 0 {
		out = append(out, w.swap(a, n))
	}
	return out
}

// swap returns the line of the swap space for the pages of preempted sequences. On backend cpu
// that is a file on disk, which takes no memory; on ref it is in Go's heap.
func (w resolved) swap(a *engine.Account, n int64) Item {
	it := Item{Name: backend.Swap.String(), Bytes: n, Basis: Exact, Rule: fmt.Sprintf("memory.swapSpace: %s KV slabs of preempted sequences", Group(int64(a.KV.Slabs(n))))}
	if w.in.Opener.Name() == "cpu" {
		it.Basis = Apart
		it.Rule += ", a file in $TMPDIR or /var/tmp"
	}
	return it
}

// checkSwap refuses swap space that is smaller than one slab.
func (w resolved) checkSwap(a *engine.Account) error {
	p := w.in.Profile
	if n := p.Memory.SwapSpace; n > 0 && a.KV.Slabs(int64(n)) == 0 {
		return p.Reject("memory.swapSpace", "%v holds no KV slab of this model (%s); allowed: 0, or at least %s", n, Size(a.KV.SlabBytes), Group(a.KV.SlabBytes))
	}
	return nil
}

// overheads returns the lines of memory that a device's driver and graphs take in addition to
// the arenas.
func overheads(a *engine.Account) []Item {
	from, has := a.Layout.(backend.Overheads)
	if !has {
		return nil
	}
	var out []Item
	for _, o := range from.Overheads(a.Reservation) {
		it := Item{Name: o.Name, Bytes: o.Bytes, Basis: Bound, Rule: o.Rule}
		switch {
		case o.Fitted:
			it.Basis = Fitted
		case o.Host:
			it.Basis = Host
		}
		out = append(out, it)
	}
	return out
}

// workspaceItem returns the line of the workspace. If a library computes matrix products, the
// library's part is listed separately.
func workspaceItem(o engine.Options, a *engine.Account) Item {
	it := Item{Name: backend.Workspace.String(), Bytes: a.Reservation.Arenas[backend.Workspace], Basis: Exact, Rule: "scratch buffers of kernels and threads"}
	if o.Backend.Linear == "" {
		return it
	}
	shapes, err := shapesOf(a)
	if err != nil || !slices.ContainsFunc(shapes, func(k backend.KernelChoice) bool { return strings.HasSuffix(k.Kernel, "_"+o.Backend.Linear) }) {
		return it
	}
	const library = backend.CUBLASLtWorkspace
	it.Parts = []Item{
		{Name: o.Backend.Linear, Bytes: library, Basis: Exact, Rule: "the most that the library's algorithms may want"},
		{Name: "kernels", Bytes: it.Bytes - library, Basis: Exact, Rule: "packed inputs, shared sums, logits"},
	}
	return it
}

func kvRule(o engine.Options, a *engine.Account) string {
	slabs := a.Slabs(o.KVBytes)
	return fmt.Sprintf("%s slabs, %s pages × %d tokens, %v", Group(int64(slabs)), Group(int64(a.KV.Pages(0, slabs))), o.BlockSize, o.KVFormat)
}

func (w resolved) text(o engine.Options) Item {
	vocab := int64(w.in.Model.Config.VocabSize)
	tokenizer, workers := textBase+textPerToken*vocab, int64(TextWorkers*textPerWorker)
	grammars := GrammarBytes(o.MaxNumSeqs)
	return Item{Name: textItem, Bytes: add(tokenizer+workers, grammars), Basis: Bound, Rule: "tokenizer, templates, grammars and what they work on", Parts: []Item{
		{Name: "tokenizer", Bytes: tokenizer, Basis: Bound,
			Rule: fmt.Sprintf("%v + %v × %s token ids", schema.Bytes(textBase), schema.Bytes(textPerToken), Group(vocab))},
		{Name: "workers", Bytes: workers, Basis: Bound,
			Rule: fmt.Sprintf("%d workers × %v, each a window of text or a render", TextWorkers, schema.Bytes(textPerWorker))},
		{Name: "grammars", Bytes: grammars, Basis: Bound,
			Rule: fmt.Sprintf("%v, the largest, + %v × %d seqs; further ones get 503", schema.Bytes(grammarBase), schema.Bytes(grammarPerSeq), o.MaxNumSeqs)},
	}}
}

// children returns the line of the child processes that render templates of requests and try
// grammars, one of each size at a time. They share the pages of the binary.
func children() Item {
	small, large := tokenizer.ChildBytes()
	return Item{Name: childItem, Bytes: small + large, Basis: Bound,
		Rule: fmt.Sprintf("processes that try grammars and render templates of requests: %v + %v", schema.Bytes(small), schema.Bytes(large))}
}

func (w resolved) runtime(o engine.Options, a *engine.Account) Item {
	slabs := a.Slabs(o.KVBytes)
	pages, index := countPages(a, slabs)+countPages(a, a.Slabs(a.Reservation.Arenas[backend.Swap])), indexHeap(o, a, slabs)
	vocab := int64(w.in.Model.Config.VocabSize)
	heap := add(heapBase+heapPerSeq*int64(o.MaxNumSeqs)+heapPerWord*vocab+heapPerPage*pages+index, w.bodies())
	threads := w.threads(o)
	rule := fmt.Sprintf("%v + %v × %d seqs + %v × %s pages + %v × %s ids",
		schema.Bytes(heapBase), schema.Bytes(heapPerSeq), o.MaxNumSeqs, schema.Bytes(heapPerPage), Group(pages), schema.Bytes(heapPerWord), Group(vocab))
	if tokens := indexTokens(o, a, slabs); tokens > 0 {
		rule += fmt.Sprintf(" + %v × %s tokens in n-gram indexes", schema.Bytes(index/tokens), Group(tokens))
	}
	rule += fmt.Sprintf(" + bodies: %v + %d × %v", schema.Bytes(bodyBase), bodyTimes, w.in.Profile.Serve.Limits.MaxBodyBytes)
	if w.in.Profile.Serve.KVEvents != nil {
		heap = add(heap, kvEventsHeap)
		rule += fmt.Sprintf(" + KV events: %v", schema.Bytes(kvEventsHeap))
	}
	if w.in.Profile.Serve.Traces != nil {
		heap = add(heap, tracesHeap)
		rule += fmt.Sprintf(" + traces: %v", schema.Bytes(tracesHeap))
	}
	if m := w.in.Profile.Multimodal; m != nil && vision(w.in.Profile) {
		heap = add(heap, add(int64(m.LoadMemory), int64(m.Cache)))
		rule += fmt.Sprintf(" + images: %v to load + %v kept", m.LoadMemory, m.Cache)
	}
	rest := binaryPages + perThread*threads
	return Item{Name: runtimeItem, Bytes: add(heap, rest), Basis: Bound, Rule: "this process apart from its arenas", Parts: []Item{
		{Name: heapPart, Bytes: heap, Basis: Bound, Rule: rule},
		{Name: "binary", Bytes: rest, Basis: Bound, Rule: fmt.Sprintf("%v + %v × %d threads", schema.Bytes(binaryPages), schema.Bytes(perThread), threads)},
	}}
}

// followerRuntime returns the line of a process of a rank other than 0, which has no text, no
// requests and no bookkeeping of pages: it runs the steps that rank 0 sends.
func (w resolved) followerRuntime(o engine.Options) Item {
	rest := binaryPages + perThread*w.threads(o)
	return Item{Name: runtimeItem, Bytes: heapBase + rest, Basis: Bound, Rule: "this process apart from its arenas", Parts: []Item{
		{Name: heapPart, Bytes: heapBase, Basis: Bound, Rule: fmt.Sprintf("%v: rank 0 has text, requests and pages", schema.Bytes(heapBase))},
		{Name: "binary", Bytes: rest, Basis: Bound, Rule: fmt.Sprintf("%v + %v × %d threads", schema.Bytes(binaryPages), schema.Bytes(perThread), w.threads(o))},
	}}
}

// threads returns how many threads a process has outside of Go's own.
func (w resolved) threads(o engine.Options) int64 {
	if w.onGPU() {
		return hostThreads
	}
	return int64(max(1, w.in.Facts.Cores, o.Backend.Threads))
}

// pageHeap returns the Go heap that an arena of that many slabs needs: the bookkeeping of its
// pages and the n-gram indexes of its tokens.
func pageHeap(o engine.Options, a *engine.Account, slabs int) int64 {
	return heapPerPage*countPages(a, slabs) + indexHeap(o, a, slabs)
}

func countPages(a *engine.Account, slabs int) int64 {
	var pages int64
	for c := range a.Pool.Specs {
		pages += int64(a.Pool.Pages(c, slabs))
	}
	return pages
}

// indexTokens returns how many tokens the n-gram indexes may hold: those of maxNumSeqs
// sequences, and at most the tokens of the first class.
func indexTokens(o engine.Options, a *engine.Account, slabs int) int64 {
	if o.Lookup.TokenBytes() == 0 {
		return 0
	}
	return min(a.Pool.Tokens(slabs), int64(o.MaxNumSeqs)*int64(o.MaxModelLen))
}

// indexHeap returns an upper bound of the memory of these indexes, twice their size: tables are
// copied while they grow, and the old ones wait for the garbage collector.
func indexHeap(o engine.Options, a *engine.Account, slabs int) int64 {
	return 2 * o.Lookup.TokenBytes() * indexTokens(o, a, slabs)
}

// mappedBytes returns the bytes of all tensors that are in files.
func (w resolved) mappedBytes() int64 {
	var n int64
	for m := w.in.Model; m != nil; m = m.Draft {
		for _, t := range m.Checkpoint.Tensors() {
			if t.File != "" {
				n += t.Bytes
			}
		}
	}
	return n
}

// goMemoryLimit returns the limit of the Go heap. It includes the control channel of ranks, and the
// arenas of backend ref, which are in the Go heap.
func goMemoryLimit(backendName string, l Ledger) int64 {
	var n int64
	for _, i := range l {
		if i.Name != runtimeItem {
			continue
		}
		for _, p := range i.Parts {
			if p.Name == heapPart {
				n = p.Bytes
			}
		}
	}
	n = add(n, l.controlHeap())
	if backendName == "ref" {
		for _, b := range l.Arenas() {
			n = add(n, b)
		}
	}
	return n
}

// mul returns n × bytes, saturated at the largest int64.
func mul(n, bytes int64) int64 {
	if bytes > math.MaxInt64/n {
		return math.MaxInt64
	}
	return n * bytes
}

// add returns a + b, saturated at the largest int64.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// setsOf counts the sets of step buffers: "two sets".
func setsOf(s backend.StepShape) string {
	if n := s.NumSets(); n > 2 {
		return numberOf(n, "set")
	}
	return "two sets"
}
