package backend

// Facts describe a machine for a Layout. They come from Probe or from a catalogue
// (engine/backend/devices), and plans print them as JSON.
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
	MemoryLimit string   `json:"memory_limit,omitempty"` // source of TotalBytes: "cgroup", "system", or "flag" if the user set it

	// The following fields are 0 or "" if unknown.

	SMs         int     `json:"sms,omitempty"`          // streaming multiprocessors, or compute units
	Capability  string  `json:"capability,omitempty"`   // CUDA's compute capability: "8.0"
	SharedBytes int64   `json:"shared_bytes,omitempty"` // shared memory of an SM
	Bandwidth   float64 `json:"bandwidth,omitempty"`    // of memory, bytes a second
	MatrixRate  float64 `json:"matrix_rate,omitempty"`  // dense 16-bit products, FLOP a second
	Driver      string  `json:"driver,omitempty"`       // its version, when probed
	// CUBLASLt is the version of NVIDIA's cuBLASLt, "13.0.2": found by Probe, assumed for a device of a
	// catalogue; "": there is none.
	CUBLASLt string `json:"cublaslt,omitempty"`
	// NoCUBLASLt is the reason why a cuBLASLt that was found cannot be used.
	NoCUBLASLt string `json:"no_cublaslt,omitempty"`
	// NoAMX is the reason why Variants lacks amx although the processor has it.
	NoAMX string `json:"no_amx,omitempty"`
	// PlanOnly is the reason why programs cannot run on the device; "": they can.
	PlanOnly string `json:"plan_only,omitempty"`

	// Limits are the system's limits on the memory of this process. Only Probe sets them.
	Limits []ProcessLimit `json:"-"`
	// Nodes are the NUMA nodes on whose CPUs and in whose memory this process may run, if there
	// are several. Only Probe sets them.
	Nodes []Node `json:"-"`
}

// Node is a NUMA node: CPUs, and the memory that is near to them.
type Node struct {
	ID    int
	CPUs  []int // that this process may use, ascending
	Bytes int64 // of memory; 0: unknown
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
	AddressSpace = "address space" // RLIMIT_AS: all mapped or reserved memory
	DataSize     = "data"          // RLIMIT_DATA: private writable mappings
)

// Shard identifies the part of every weight that this rank holds.
type Shard struct{ Rank, World int }

// Whole is the shard of a single rank.
var Whole = Shard{Rank: 0, World: 1}
