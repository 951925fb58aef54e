package host

import (
	"slices"
	"testing"
	"testing/fstest"
)

// TestSurvey reads nested groups of version 2, swap, huge pages, a quota, nodes and a GPU.
func TestSurvey(t *testing.T) {
	s := Survey(fstest.MapFS{
		"proc/self/cgroup":                                  file("0::/a/b\n"),
		"proc/meminfo":                                      file("SwapTotal: 2048 kB\nSwapFree: 1024 kB\nHugePages_Total: 8\nHugePages_Free: 3\n"),
		"sys/fs/cgroup/a/b/memory.max":                      file("max\n"),
		"sys/fs/cgroup/a/b/cpu.max":                         file("150000 100000\n"),
		"sys/fs/cgroup/a/memory.max":                        file("1048576\n"),
		"sys/fs/cgroup/a/memory.current":                    file("4096\n"),
		"sys/kernel/mm/transparent_hugepage/enabled":        file("always [madvise] never\n"),
		"sys/kernel/mm/transparent_hugepage/hpage_pmd_size": file("2097152\n"),
		"sys/devices/system/node/node0/cpulist":             file("0-1\n"),
		"sys/devices/system/node/node1/cpulist":             file("2-3\n"),
		"sys/devices/system/node/possible":                  file("0-1\n"),
		"sys/bus/pci/devices/0000:01:00.0/vendor":           file("0x10de\n"),
		"sys/bus/pci/devices/0000:01:00.0/class":            file("0x030200\n"),
	})
	if want := []Group{{"/a", 1 << 20, 4096}}; !slices.Equal(s.Groups, want) {
		t.Errorf("groups %+v, want %+v", s.Groups, want)
	}
	s.Groups = nil
	want := System{SwapTotal: 2 << 20, SwapFree: 1 << 20, Huge: "madvise", HugeBytes: 2 << 20, HugeTotal: 8, HugeFree: 3, Quota: 2, Nodes: 2, Nvidia: true}
	if s.Huge != want.Huge || s.SwapTotal != want.SwapTotal || s.SwapFree != want.SwapFree || s.HugeBytes != want.HugeBytes ||
		s.HugeTotal != 8 || s.HugeFree != 3 || s.Quota != 2 || s.Nodes != 2 || !s.Nvidia {
		t.Errorf("%+v, want %+v", s, want)
	}
	if v1 := Survey(fstest.MapFS{
		"proc/self/cgroup": file("4:memory:/c\n"),
		"sys/fs/cgroup/memory/c/memory.limit_in_bytes": file("1048576\n"),
	}); len(v1.Groups) != 1 || v1.Groups[0].Path != "/c" || v1.Nvidia {
		t.Errorf("version 1: %+v", v1)
	}
}
