// Package backend is the seam between model code and the machines that run it:
// recorded programs, the ops they are made of, the memory they use, and the
// interfaces a backend implements. It knows no model, request or scheduler.
//
// A backend has two halves. Its Layout is pure: from Facts alone it says how
// many bytes a packed weight takes, which kernel serves it and how much
// workspace a Program needs; the planner uses nothing else. Its Device owns
// memory and threads and does the arithmetic. Because a Device allocates by the
// same Layout, the plan and the allocation cannot differ.
package backend

import (
	"errors"
	"fmt"

	"vapp.dev/kernels"
)

// ErrUnsupported is wrapped by every refusal of something a backend cannot do.
// The wrapping error names the op, format or setting and why.
var ErrUnsupported = errors.New("unsupported")

// Unsupported makes a refusal: backend, what was asked for, and the reason.
func Unsupported(backend, what, why string) error {
	return fmt.Errorf("backend %s: %s: %w: %s", backend, what, ErrUnsupported, why)
}

// Opener is one backend as cmd/vapp lists it.
type Opener interface {
	// Name is the word a profile uses: "cpu", "ref".
	Name() string
	// Probe reads the facts of this machine. It allocates nothing.
	Probe() (Facts, error)
	// Layout is the pure half for a machine with these facts.
	Layout(Facts, Settings) (Layout, error)
	// Open takes the memory in Reservation, all of it at once, and starts
	// the threads. A binary built without the backend's native half returns
	// ErrUnsupported.
	Open(Facts, Settings, Reservation) (Device, error)
}

// Settings are the profile's choices about a backend. The zero value means
// the backend's own choice everywhere.
type Settings struct {
	// Threads that compute; 0 lets the layout derive it from Facts.
	Threads int
	// HTTPShare is the share of the machine's CPU time, 0 to 1, that the
	// compute threads leave to everything else.
	HTTPShare float64
	// Variant forces an instruction set: "avx2", "avx512", "avx512bf16", "amx"; empty
	// picks the best one in Facts.
	Variant string
	// Activations says what a backend rounds x to before it multiplies with
	// quantized weights: Int8Activations, FP8Activations, or "" for what it computes in.
	Activations string
	// Linear says which products backend cuda computes: CUBLASLt, or "" for its own kernels'.
	Linear string
	// SwapDir is the directory of the file that a host backend keeps its Swap arena
	// in; "": the system's for files that may be large, $TMPDIR or /var/tmp.
	SwapDir string
	// Cache is where packed weights are kept.
	Cache Cache
	// Graphs says which steps are captured; backend cuda only.
	Graphs Graphs
	// TimeOps has the device measure its ops: see OpTimer.
	TimeOps bool
}

// Layout is the pure half of a backend: arithmetic on Facts and Settings.
type Layout interface {
	// Choices names what was picked: "variant" → "avx512", "threads" → "2".
	Choices() []Choice
	// Weight says how a weight is stored and which kernel reads it.
	Weight(WeightSpec) (Packed, error)
	// KVFormats lists the formats attention can read, the preferred first.
	KVFormats() []kernels.Format
	// Workspace is the memory besides values that p's ops need, in bytes, also
	// of ops that the backend plans and cannot run yet. It fails with
	// ErrUnsupported for a shape that no kernel will have.
	Workspace(p *Program) (int64, error)
	// Runs says whether a Device would run the weights and p: nil, or ErrUnsupported with
	// the first op, format or setting that is planned only, and why.
	Runs(weights []WeightSpec, p *Program) error
	// Round returns the bytes an arena of n bytes takes: n rounded up to
	// the backend's allocation unit.
	Round(n int64) int64
}

// Chunked is what a Layout has whose programs take a gated MLP chunk by chunk.
type Chunked interface {
	// Chunk is Bucket.Chunk for steps of up to so many tokens.
	Chunk(tokens int) int
}

// KernelChooser is what a Layout has whose kernels follow the shapes of ops and the rows of steps.
type KernelChooser interface {
	// Chosen lists what p's products and attention run by, in steps from few rows to many.
	KernelChoices(p *Program) ([]KernelChoice, error)
}

// KernelChoice is the kernel of a program's ops of one shape.
type KernelChoice struct {
	Op     string `json:"op"`     // OpName
	Format string `json:"format"` // of weights, or of keys and values
	Shape  string `json:"shape"`  // outputs × inputs, of how many experts; query/KV heads × their size
	Rows   int    `json:"rows"`   // of the op, at most
	Decode bool   `json:"decode"` // of steps of one token for each sequence alone
	Kernel string `json:"kernel"`
	Splits int    `json:"splits"` // into how many parts inputs, or positions, are cut
	Ops    int    `json:"ops"`    // how many of the program
}

// Overheads is what a Layout has whose device holds memory beside the arenas.
type Overheads interface {
	// Overheads lists it for a reservation: a driver's context, loaded code,
	// captured graphs.
	Overheads(Reservation) []Overhead
}

// Overhead is memory that cannot be derived: measured once for a device and a
// driver, or fitted on others' logs.
type Overhead struct {
	Name  string // "context", "graphs"
	Bytes int64
	// Fitted says that Bytes is an estimate with a known error; else it is a bound.
	Fitted bool
	// Host says that it lies in the machine's own memory, to the byte.
	Host bool
	Rule string
}

// Choice is one decision of a Layout, for the plan to print.
type Choice struct{ Name, Value, Why string }

// Packed is how a Layout stores a weight.
type Packed struct {
	Format kernels.Format // as stored; differs from the source's if converted
	Bytes  int64          // in the weight arena, alignment included
	Kernel string         // the kernel and variant that reads it
	Note   string         // why it was converted, else empty
}

// Reservation is every byte a Device may use, as the ledger lists it. A
// Device allocates exactly these arenas (already Rounded) and nothing else.
type Reservation struct {
	Weights  []WeightSpec
	Packed   []Packed // of Weights, from Layout.Weight
	Arenas   [NumArenas]int64
	Step     StepShape
	Classes  []KVClass
	Programs []*Program
}

// Arena is one of the regions a Device owns.
type Arena uint8

// The arenas. Offsets in Values, weights and pages are relative to them.
const (
	Weights   Arena = iota // packed weights, in the order of the specs
	KV                     // slabs of pages
	Scratch                // Values of a running Program
	Workspace              // per-thread room of the kernels
	StepIO                 // step buffers, two sets
	Swap                   // slots for pages that are off the device: whole slabs, as KV
	NumArenas
)

var arenaNames = [NumArenas]string{"weights", "kv", "scratch", "workspace", "step", "swap"}

// String is the arena's name in ledgers and metrics.
func (a Arena) String() string { return arenaNames[a] }

// Device runs programs. All methods but Usage are called from one goroutine.
type Device interface {
	// Pack stores weight i of the reservation, reading it through src.
	// Packing different weights from several goroutines at once is allowed.
	Pack(i int, src RowReader) error
	// Compile prepares a program of the reservation.
	Compile(*Program) (Executable, error)
	// Step returns the buffers of a set, 0 or 1, at addresses that never
	// change.
	Step(set int) *Step
	// Launch starts e on the set's buffers and returns at once. Launches run
	// in order. Negative entries of Step.Tokens refer to the other set.
	Launch(e Executable, b Binding) error
	// Wait blocks until the last Launch on the set has finished; its error
	// is the launch's.
	Wait(set int) error
	// Usage is the bytes each arena really took from the system.
	Usage() [NumArenas]int64
	// Move copies pages between the KV arena and slots of the Swap arena, one after
	// the other: after all launches before it, before all that come later. An error
	// leaves the contents of what it names unknown.
	Move([]PageMove) error
	// Close stops the threads and gives all memory back.
	Close() error
}

// PageMove is one page that leaves the device or comes back. Slots lie in the Swap
// arena as pages do in that of KV.
type PageMove struct {
	Class int
	Out   bool // page to slot, else slot to page
	Page  int32
	Slot  int32
}

// Executable is a compiled Program; it belongs to the Device that made it.
type Executable interface{ Program() *Program }

// Binding gives the row symbols of a Launch their values.
type Binding struct {
	Set     int // which step buffers, 0 or 1
	Tokens  int // T: rows of PerToken values
	Seqs    int // S: sequences in the step
	Samples int // L: rows of PerSample values
	// Graph is the captured step that runs in place of launches, of a Capturer alone; zero:
	// none. The counts above are the real ones, and what is behind them up to Graph's is
	// padding (see Step.Pad).
	Graph Graph
}

// RowReader streams rows of checkpoint tensors.
type RowReader interface {
	// ReadRows fills dst with rows [row0, row0+rows) of the named tensor, in
	// the tensor's own format; a vector is one row.
	ReadRows(name string, row0, rows int, dst []byte) error
}

// Maker is what a RowReader has that makes some tensors up, so that a Device can make them
// itself: what Made says of a tensor is what ReadRows reads.
type Maker interface {
	Made(tensor string) (kernels.Made, bool)
}

// MemoryReporter is what a Device has whose driver tells how much of its memory is free, by whomever
// it was taken.
type MemoryReporter interface {
	// Memory is all memory of the device, what of it was free before this Device took any,
	// and what is free now, in bytes.
	Memory() (total, before, now int64, err error)
}

// Inspector is what a Device has so that tests can look into it: backendtest
// compares ops with it, golden tests read logits with it.
type Inspector interface {
	// Scratch returns the bytes of a value of p at the bucket's row count, as the
	// last Launch that was waited for left them; ops that ran later may have
	// taken the value's room. The caller only reads.
	Scratch(v Value, p *Program) []byte
}
