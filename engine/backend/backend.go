package backend

import (
	"errors"
	"fmt"

	"vapp.dev/kernels"
)

// ErrUnsupported is wrapped by every error about something that a backend cannot do.
// The wrapping error names the op, format or setting and the reason.
var ErrUnsupported = errors.New("unsupported")

// Unsupported returns an error that wraps ErrUnsupported: backend, what was asked for, and
// the reason.
func Unsupported(backend, what, why string) error {
	return fmt.Errorf("backend %s: %s: %w: %s", backend, what, ErrUnsupported, why)
}

// Opener is one backend as cmd/vapp lists it.
type Opener interface {
	// Name returns the backend's name in a profile: "cpu", "ref".
	Name() string
	// Probe reads the facts of this machine. It allocates nothing.
	Probe() (Facts, error)
	// Layout returns the pure half for a machine with these facts.
	Layout(Facts, Settings) (Layout, error)
	// Open allocates all the memory of Reservation at once and starts the threads. A
	// binary built without the backend's native half returns ErrUnsupported.
	Open(Facts, Settings, Reservation) (Device, error)
}

// Settings are the profile's choices about a backend. A zero field leaves the choice to
// the backend.
type Settings struct {
	// Threads is the number of compute threads; 0: the layout derives it from Facts.
	Threads int
	// HTTPShare is the share of the machine's CPU time, 0 to 1, that the
	// compute threads leave to everything else.
	HTTPShare float64
	// Variant forces an instruction set: "avx2", "avx512", "avx512bf16", "amx", "neon",
	// "dotprod", "i8mm"; "": the best one in Facts.
	Variant string
	// Activations is what a backend rounds inputs to before it multiplies them with
	// quantized weights: Int8Activations or FP8Activations; "": the format it computes in.
	Activations string
	// Favor selects among the kernels that a host backend has for weights of a quantized format:
	// FavorDecode or FavorPrefill; "": the backend's default. Together with Variant the kernel must
	// be that variant's.
	Favor string
	// Linear selects the library for dense products of backend cuda: CUBLASLt; "": its own
	// kernels.
	Linear string
	// NUMA is NUMAOff, or "": weights and threads of backend cpu are spread over the nodes of
	// Facts.
	NUMA string
	// SwapDir is the directory of the file in which a host backend keeps its Swap arena;
	// "": $TMPDIR or /var/tmp, the system's directory for large temporary files.
	SwapDir string
	// Cache is where packed weights are cached.
	Cache Cache
	// Graphs selects the steps that are captured; backend cuda only.
	Graphs Graphs
	// TimeOps makes the device measure its ops: see OpTimer.
	TimeOps bool
	// Group connects the ranks of the model; nil: there is one.
	Group Group
	// Weights are those of another Device, which this one uses instead of memory of its own: Pack is not called.
	// Open fails with *WeightsError unless it would pack the same, and with ErrUnsupported in a group. nil: the
	// device has its own.
	Weights PackedWeights
}

// NUMAOff is the value of Settings.NUMA for a device that places neither threads nor memory.
const NUMAOff = "off"

// Layout is the pure half of a backend: arithmetic on Facts and Settings.
type Layout interface {
	// Choices lists what was picked: "variant" → "avx512", "threads" → "2".
	Choices() []Choice
	// Weight returns how a weight is stored and which kernel reads it.
	Weight(WeightSpec) (Packed, error)
	// KVFormats lists the formats attention can read, the preferred first.
	KVFormats() []kernels.Format
	// Workspace returns the bytes that p's ops need besides values, including ops that the
	// backend plans but cannot run yet. It fails with ErrUnsupported for a shape that no
	// kernel will have.
	Workspace(p *Program) (int64, error)
	// Runs returns nil if a Device can run the weights and p. Otherwise it returns
	// ErrUnsupported with the first op, format or setting that is planned only, and why.
	Runs(weights []WeightSpec, p *Program) error
	// Round returns the bytes an arena of n bytes takes: n rounded up to
	// the backend's allocation unit.
	Round(n int64) int64
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
// Device allocates exactly these arenas (already rounded) and nothing else; with Settings.Weights, all but the Weights arena.
type Reservation struct {
	Weights  []WeightSpec
	Packed   []Packed // of Weights, from Layout.Weight
	Arenas   [NumArenas]int64
	Step     StepShape
	Classes  []KVClass
	Programs []*Program
	Encoder  EncoderShape // sizes the Item and Encoded arenas: see AddEncoder
}

// Arena is one of the memory regions of a Device.
type Arena uint8

// The arenas. Offsets in values, weights and pages are relative to them.
const (
	Weights   Arena = iota // packed weights, in the order of the specs
	KV                     // slabs of pages
	Scratch                // values of a running Program
	Workspace              // temporary buffers of the kernels, for each thread
	StepIO                 // step buffers, a set for each step in flight
	Swap                   // slots for pages that are swapped out: whole slabs, as in KV
	Item                   // input buffers of an encoder, for one item
	Encoded                // the cache of encoded rows
	NumArenas
)

var arenaNames = [NumArenas]string{"weights", "kv", "scratch", "workspace", "step", "swap", "item", "encoded"}

// String returns the arena's name in ledgers and metrics.
func (a Arena) String() string { return arenaNames[a] }

// Device runs programs. One goroutine calls all methods but Pack and Usage.
type Device interface {
	// Pack stores weight i of the reservation, reading it through src. Several goroutines
	// may pack different weights at once.
	Pack(i int, src RowReader) error
	// Compile prepares a program of the reservation.
	Compile(*Program) (Executable, error)
	// Step returns the buffers of a set, from 0 on. Their addresses never change.
	Step(set int) *Step
	// Launch starts e on the set's buffers and returns at once. Launches run
	// in order, on the sets in turn. Negative entries of Step.Tokens refer to the set before.
	Launch(e Executable, b Binding) error
	// Wait blocks until the last Launch on the set has finished and returns its error.
	Wait(set int) error
	// Usage returns the bytes each arena really took from the system.
	Usage() [NumArenas]int64
	// Move copies pages between the KV arena and slots of the Swap arena, in order: after
	// all earlier launches and before all later ones. After an error the contents of the
	// named pages and slots are undefined.
	Move([]PageMove) error
	// Close stops the threads and frees all memory.
	Close() error
}

// PageMove swaps one page out or in. Slots are addressed in the Swap arena as pages are in
// the KV arena.
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
	Set     int // which step buffers
	Tokens  int // T: rows of PerToken values
	Seqs    int // S: sequences in the step
	Samples int // L: rows of PerSample values
	// Graph is the captured step to replay instead of single launches (Capturer only);
	// zero: none. The counts above are the real ones; rows from there up to Graph's counts
	// are padding (see Step.Pad).
	Graph Graph
}

// RowReader streams rows of checkpoint tensors.
type RowReader interface {
	// ReadRows fills dst with rows [row0, row0+rows) of the named tensor, in
	// the tensor's own format; a vector is one row.
	ReadRows(name string, row0, rows int, dst []byte) error
}
