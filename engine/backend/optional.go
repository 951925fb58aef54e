package backend

import (
	"context"
	"fmt"

	"vapp.dev/kernels"
)

// This file has the optional interfaces of a Layout, a Device or a RowReader. A caller uses
// a type assertion and works without the interface if it is missing.

// Of a Layout:

// Chunked is a Layout whose programs run gated MLPs in chunks of tokens, which bounds the
// size of the intermediate values.
type Chunked interface {
	// Chunk returns Bucket.Chunk for steps of at most this many tokens.
	Chunk(tokens int) int
}

// ActivationLayout is a Layout whose kernels take some values in 16 bits.
type ActivationLayout interface {
	// Activations returns the format in which each of p's values is to be stored: its own, or for
	// one that is recorded as F32 a format of 16 bits, where Check allows it.
	Activations(p *Program) []kernels.Format
}

// KernelChooser is a Layout that picks kernels by the shapes of ops and the rows of steps.
type KernelChooser interface {
	// KernelChoices lists the kernels of p's products and attention, for steps from few
	// rows to many.
	KernelChoices(p *Program) ([]KernelChoice, error)
}

// KernelChoice is the kernel that runs a program's ops of one shape.
type KernelChoice struct {
	Op     string `json:"op"`     // OpName
	Format string `json:"format"` // of weights, or of keys and values
	Shape  string `json:"shape"`  // outputs × inputs, and the number of experts; or query/KV heads × their size
	Rows   int    `json:"rows"`   // of the op, at most
	Decode bool   `json:"decode"` // only in steps with one token for each sequence
	Kernel string `json:"kernel"`
	Splits int    `json:"splits"` // parts that inputs, or positions, are split into
	Ops    int    `json:"ops"`    // how many ops of the program
}

// WorkLister is a Layout whose devices compute lists of work for their launches from a step's other inputs: Step.Work.
type WorkLister interface {
	// WorkLists returns the most numbers of StepShape.Work that a step of p needs.
	WorkLists(p *Program) (int, error)
}

// WorkLists returns StepShape.Work for programs on a layout.
func WorkLists(l Layout, programs []*Program) (most int, err error) {
	w, ok := l.(WorkLister)
	if !ok {
		return 0, nil
	}
	for _, p := range programs {
		n, err := w.WorkLists(p)
		if err != nil {
			return 0, err
		}
		most = max(most, n)
	}
	return most, nil
}

// Overheads is a Layout whose device uses memory outside the arenas.
type Overheads interface {
	// Overheads lists that memory for a reservation: a driver's context, loaded code,
	// captured graphs.
	Overheads(Reservation) []Overhead
}

// Overhead is memory that cannot be derived. It was measured once for a device and a
// driver, or fitted to published logs.
type Overhead struct {
	Name  string // "context", "graphs"
	Bytes int64
	// Fitted marks an estimate with a known error; otherwise Bytes is an upper bound.
	Fitted bool
	// Host marks memory of the host, which is exact.
	Host bool
	Rule string
}

// CacheLayout is a Layout whose devices cache packed weights in a file.
type CacheLayout interface {
	// CacheFile returns the path of the file for a reservation's weights.
	CacheFile(Cache, Reservation) string
}

// PackingLayout is a Layout whose packed weights depend on more than Packed.
type PackingLayout interface {
	// Packing names it: "avx512, 4 threads on node 0, 4 threads on node 1". Weights packed under another name have
	// other bytes, or the same in other memory.
	Packing() string
}

// PackingOf returns l.Packing, "" if the layout has none.
func PackingOf(l Layout) string {
	if p, ok := l.(PackingLayout); ok {
		return p.Packing()
	}
	return ""
}

// Of a Device:

// CacheWriter is a Device that can cache its packed weights.
type CacheWriter interface {
	// CacheUse reports how the Weights arena was filled. It must not run during WriteCache.
	CacheUse() CacheUse
	// WriteCache writes the file. All weights must be packed; steps may run meanwhile. The
	// complete file replaces the old one atomically. Cancelling ctx stops it. The error is
	// a *CacheError.
	WriteCache(ctx context.Context) error
}

// Capturer is a Device that captures steps into graphs. A graph belongs to an Executable
// and a set of step buffers.
type Capturer interface {
	// Capture captures the graphs of a step of g on the buffers of a set; nothing runs. Rows
	// of the buffers need not be filled.
	Capture(e Executable, set int, g Graph) error
	// GraphBytes returns the device memory that graphs have taken so far.
	GraphBytes() int64
}

// OpTimer is a Device that measures its ops where Settings.TimeOps is set.
type OpTimer interface {
	// OpTimes returns the time of all ops since the device was opened, summed by name: first
	// in steps with one token for each sequence, then in all others. Any goroutine may
	// call it.
	OpTimes() (decode, prompts []OpTime)
}

// MemoryReporter is a Device whose driver reports its free memory, whichever process uses
// the rest.
type MemoryReporter interface {
	// Memory returns the device's total memory, what was free before this Device allocated
	// any, and what is free now, in bytes. Settings.Weights count as if this Device had allocated them.
	Memory() (total, before, now int64, err error)
}

// Noter is a Device that has something to say about its start, by which nothing fails.
type Noter interface {
	// Notes returns it, a line each.
	Notes() []string
}

// Placer is a Device that places threads and memory on NUMA nodes.
type Placer interface {
	// Placement returns what is on which node now. It reads the system's list of this
	// process's memory, which takes milliseconds.
	Placement() Placement
}

// Placement is what a Device has on the NUMA nodes of the machine.
type Placement struct {
	Nodes   []NodeUse // empty: the device does not place anything
	Refused error     // a *PlacementError if the system refused to place memory, else nil
}

// NodeUse is what a Device has on one NUMA node.
type NodeUse struct {
	ID, Threads int
	Bytes       int64 // of the arenas, resident; 0 if the system does not say
}

// PlacementError is a system call that the system refused. Nothing fails by it: threads on each
// node make its memory resident instead.
type PlacementError struct {
	Call string
	Err  error
}

// Error names the call, the consequence and the remedy.
func (e *PlacementError) Error() string {
	return fmt.Sprintf("%s: %v: memory is placed by the threads that touch it first; allow %s in the container's seccomp profile, or set cpu.numa to \"off\"", e.Call, e.Err, e.Call)
}

func (e *PlacementError) Unwrap() error { return e.Err }

// Inspector is a Device whose values tests can read: backendtest compares ops with it,
// golden tests read logits with it.
type Inspector interface {
	// Scratch returns the bytes of a value of p at the bucket's row count, as the last
	// Launch that was waited for left them. Later ops may have overwritten them. The
	// caller must not write to the slice.
	Scratch(v Value, p *Program) []byte
}

// Of a RowReader:

// DummySource is a RowReader that generates some tensors (vLLM's dummy weights), so that a
// Device can generate them in its own memory.
type DummySource interface {
	// Dummy returns the formula of a tensor that ReadRows generates; false for others.
	Dummy(tensor string) (kernels.Dummy, bool)
}

// ColumnReader is a RowReader that reads a part of each row.
type ColumnReader interface {
	// ReadColumns fills dst with len(dst)/rows bytes of each of the rows [row0, row0+rows), from
	// byte first of the row on.
	ReadColumns(name string, row0, rows int, first int64, dst []byte) error
}
