package backend

// Facts are what a machine is, as far as a Layout needs to know. They come
// from Probe or from a catalogue, and print as JSON in plans.
type Facts struct {
	Backend     string   `json:"backend"`
	Device      string   `json:"device"`                 // "AMD EPYC 9R14"
	TotalBytes  int64    `json:"total_bytes"`            // memory, or the cgroup's limit if lower
	FreeBytes   int64    `json:"free_bytes"`             // available now; 0 when not probed
	Cores       int      `json:"cores"`                  // CPUs this process may run on
	Variants    []string `json:"variants"`               // instruction sets, best first
	PageBytes   int64    `json:"page_bytes"`             // base page of the system
	HugeBytes   int64    `json:"huge_bytes"`             // transparent huge page; 0 when off
	L2Bytes     int64    `json:"l2_bytes"`               // per core; 0 when unknown
	Measured    bool     `json:"measured"`               // from Probe rather than a catalogue
	MemoryLimit string   `json:"memory_limit,omitempty"` // "cgroup" or "system": what TotalBytes is
}

// Shard says which part of every weight this rank holds.
type Shard struct{ Rank, World int }

// Whole is the shard of a single rank.
var Whole = Shard{Rank: 0, World: 1}
