package backend

// Facts are what a machine is, as far as a Layout needs to know. They come
// from Probe or from a catalogue (engine/backend/devices), and print as JSON in
// plans.
type Facts struct {
	Backend     string   `json:"backend"`
	Device      string   `json:"device"`                 // as the system or driver prints it: "AMD EPYC 9R14", "NVIDIA H200"
	TotalBytes  int64    `json:"total_bytes"`            // memory, or the cgroup's limit if lower
	FreeBytes   int64    `json:"free_bytes"`             // available now; 0 when not probed
	Cores       int      `json:"cores"`                  // CPUs this process may run on; 0 for a GPU of a catalogue
	Variants    []string `json:"variants"`               // instruction sets, best first
	PageBytes   int64    `json:"page_bytes"`             // base page of the system
	HugeBytes   int64    `json:"huge_bytes"`             // transparent huge page; 0 when off
	L2Bytes     int64    `json:"l2_bytes"`               // per core, of a GPU the whole; 0 when unknown
	Measured    bool     `json:"measured"`               // from Probe rather than a catalogue
	MemoryLimit string   `json:"memory_limit,omitempty"` // "cgroup" or "system": what TotalBytes is; "flag": the user's word

	// What follows is 0 or "" where it is not known.

	SMs         int     `json:"sms,omitempty"`          // streaming multiprocessors, or compute units
	Capability  string  `json:"capability,omitempty"`   // CUDA's compute capability: "8.0"
	SharedBytes int64   `json:"shared_bytes,omitempty"` // shared memory of an SM
	Bandwidth   float64 `json:"bandwidth,omitempty"`    // of memory, bytes a second
	MatrixRate  float64 `json:"matrix_rate,omitempty"`  // dense 16-bit products, FLOP a second
	Driver      string  `json:"driver,omitempty"`       // its version, when probed
	// NoAMX is why amx is not among Variants although the processor has it.
	NoAMX string `json:"no_amx,omitempty"`
	// PlanOnly is why nothing runs on the device, "" where it does.
	PlanOnly string `json:"plan_only,omitempty"`

	// Limits are what the system allows this process of its own memory, of a machine that was
	// probed; none where it has no limit.
	Limits []ProcessLimit `json:"-"`
}

// ProcessLimit is a limit on the memory of one process (setrlimit), in bytes.
type ProcessLimit struct {
	Name  string // AddressSpace or DataSize
	Limit int64
	Used  int64 // by this process when the facts were read
	Stack int64 // counted for each thread that starts
}

// The names of ProcessLimits.
const (
	AddressSpace = "address space" // RLIMIT_AS: whatever is mapped or reserved
	DataSize     = "data"          // RLIMIT_DATA: what is mapped for writing by this process alone
)

// Shard says which part of every weight this rank holds.
type Shard struct{ Rank, World int }

// Whole is the shard of a single rank.
var Whole = Shard{Rank: 0, World: 1}
