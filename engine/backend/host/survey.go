package host

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// System has facts of a Linux system for people, which no plan depends on. A fact that cannot be
// read is 0 or "".
type System struct {
	Groups    []Group // memory groups of this process with a limit, the innermost first
	SwapTotal int64   // bytes
	SwapFree  int64
	Huge      string // mode of transparent huge pages: always, madvise, never
	HugeBytes int64  // size of a transparent huge page
	HugeTotal int64  // explicit huge pages
	HugeFree  int64
	Quota     int // the lowest CPU quota of the groups, rounded up; 0: none
	Nodes     int // NUMA nodes
	Nvidia    bool
}

// Group is a control group that limits the memory of this process.
type Group struct {
	Path  string
	Limit int64 // bytes
	Used  int64 // without file caches
}

// Survey reads the files of a Linux system; root is "/".
func Survey(root fs.FS) System {
	var s System
	for _, g := range groups(root) {
		if g.limit > 0 {
			s.Groups = append(s.Groups, Group{g.path, g.limit, g.used})
		}
	}
	mem := fields(text(root, "proc/meminfo"))
	s.SwapTotal, s.SwapFree = mem["SwapTotal"]<<10, mem["SwapFree"]<<10
	s.HugeTotal, s.HugeFree = mem["HugePages_Total"], mem["HugePages_Free"]
	const huge = "sys/kernel/mm/transparent_hugepage/"
	if _, after, ok := strings.Cut(text(root, huge+"enabled"), "["); ok {
		s.Huge, _, _ = strings.Cut(after, "]")
	}
	s.HugeBytes = size(text(root, huge+"hpage_pmd_size"))
	s.Quota = quota(root)
	nodes, _ := fs.ReadDir(root, "sys/devices/system/node")
	for _, n := range nodes {
		if id, ok := strings.CutPrefix(n.Name(), "node"); ok {
			if _, err := strconv.Atoi(id); err == nil {
				s.Nodes++
			}
		}
	}
	s.Nvidia = nvidia(root)
	return s
}

// nvidia reports whether the system has a display controller or accelerator of NVIDIA.
func nvidia(root fs.FS) bool {
	if _, err := fs.Stat(root, "dev/nvidiactl"); err == nil {
		return true
	}
	const dir = "sys/bus/pci/devices"
	list, _ := fs.ReadDir(root, dir)
	for _, d := range list {
		at := path.Join(dir, d.Name())
		if text(root, at+"/vendor") == "0x10de" && strings.HasPrefix(text(root, at+"/class"), "0x03") {
			return true
		}
	}
	return false
}
