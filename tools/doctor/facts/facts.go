// Package facts gathers what vapp doctor judges: facts of the processor, memory, devices, disk,
// port, limits, hub, clock and of a profile on this machine.
//
// It must not judge, print or change anything, and it must not import tools/doctor. It reads at
// most 64 MiB of the model's file. Start reading at Gather in gather.go.
package facts

import "time"

// Facts is everything that is judged. A fact that cannot be read has its zero value.
type Facts struct {
	OS, Arch string

	Processor Processor
	Memory    Memory
	Huge      Huge
	GPU       GPU
	Library   Library
	Limits    Limits
	Hub       Hub
	Clock     Clock
	Port      Port
	Disk      Disk
	Sandbox   Sandbox
	Profile   Profile

	// Unfinished names the parts that did not end in time.
	Unfinished []string
}

// Processor has facts of the CPUs.
type Processor struct {
	Name     string
	Online   int // CPUs that the process may use: affinity, without quota
	Quota    int // CPU quota of control groups, rounded up; 0: none
	Nodes    int // NUMA nodes
	Native   bool
	Variants []string // kernel variants that may run, the best first
	// Lacks maps each variant that cannot run to the missing extensions.
	Lacks map[string][]string
	NoAMX string // why the system refuses AMX; "": it does not
}

// Memory is the machine's memory in bytes.
type Memory struct {
	Total, Free         int64
	Limit               string // cgroup, system, unknown
	SwapTotal, SwapFree int64
	Groups              []Group
}

// Group is a control group with a memory limit.
type Group struct {
	Path        string
	Limit, Used int64
}

// Huge has facts of huge pages.
type Huge struct {
	Mode        string // always, madvise, never; "": unknown
	Bytes       int64
	Total, Free int64 // explicit huge pages
}

// GPU has facts of NVIDIA's devices.
type GPU struct {
	Built   bool // the binary has backend cuda
	Present bool // the system lists a device of NVIDIA
	Devices []string
	Driver  string // the driver's CUDA version
	Loads   string // what the devices load with this driver: "machine code of sm_90a (dependent launches)"; "": no kernels
	Err     string // why there is no device; with remedy
	Remedy  string // where the driver is too old; Err has none then
	Busy    string // a device's compute mode that excludes processes
}

// Library has facts of cuBLASLt. All are "" where no device could multiply with it.
type Library struct {
	Version  string // "13.0.2"
	Path     string // its file; a bare name is one that the loader finds
	Device   string // on which it multiplied two small matrices, unless Untried says why not
	Untried  string
	Unusable string // why the library that is there cannot be used, with a remedy
	Absent   string // there is none; with a remedy
}

// Limits are limits of the process; 0: unknown, negative: none.
type Limits struct {
	Files   int64  // open files
	Memlock int64  // bytes
	Address int64  // bytes of address space
	Data    int64  // bytes
	Err     string // memory limits that are too low for any server
}

// Hub has facts of the access to the Hugging Face hub.
type Hub struct {
	Endpoint string
	Offline  bool
	Token    bool
	Err      string // why the endpoint was not reached
	Took     time.Duration
	Cache    string // folder
	Free     int64  // bytes on its disk; -1: unknown
	Writable bool
}

// Clock has times of this machine and others'.
type Clock struct {
	Now   time.Time
	Built time.Time // when this binary was built or written
	Hub   time.Time // on the hub's clock, at Now
	Model time.Time // the newest change of the model's file
}

// Port is the address that a server would listen on.
type Port struct {
	Address string
	Number  int // 0: any free port
	Err     string
	Used    bool
	Holder  string // the process that listens; "": unknown
}

// Disk has facts of the disk with the model.
type Disk struct {
	File  string
	Bytes int64   // of all the model's files
	Rate  float64 // bytes a second; 0: not measured
	Read  int64
	Err   string
	// The directory of packed weights; "": none is configured.
	Packed         string
	PackedNeeds    int64
	PackedFree     int64
	PackedWritable bool
}

// Sandbox is the result of rendering a template in a child process.
type Sandbox struct {
	Err  string
	Took time.Duration
}

// FromHub is Profile.Where of a model of which nothing is here, so that there is no plan.
const FromHub = "hub"

// Profile has facts of the profile and its plan on this machine.
type Profile struct {
	Path   string // "": no profile was given
	Name   string
	Err    string // why it cannot be loaded or planned
	NoFit  bool   // Err is that it does not fit
	Source string // the model's
	Where  string // checkpoint, config, catalogue, or FromHub
	Fetch  bool   // the weights are on the hub and not in the cache
	Needs  int64  // bytes of the plan
	Budget int64  // 0: unknown
	Carry  string // what the plan carries
	Start  string // why the planned server cannot be started; "": it can
	On     string // backend
	BLAS   bool   // it demands cuBLASLt
	// Requests is serve.limits.maxConcurrentRequests.
	Requests int64
}
