package host

import (
	"runtime"
	"testing"
	"testing/fstest"
)

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

const meminfo = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n"

func TestRead(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name        string
		files       fstest.MapFS
		total, free int64
		limit       string
	}{
		{"system", fstest.MapFS{}, 16 * gib, 8 * gib, LimitSystem},
		{"v2 in a container", fstest.MapFS{
			"proc/self/cgroup":             file("0::/\n"),
			"sys/fs/cgroup/memory.max":     file("4294967296\n"),
			"sys/fs/cgroup/memory.current": file("3221225472\n"),
			"sys/fs/cgroup/memory.stat":    file("anon 5\ninactive_file 536870912\nactive_file 536870912\n"),
		}, 4 * gib, 2 * gib, LimitCgroup},
		{"v2, the outer group is the lower", fstest.MapFS{
			"proc/self/cgroup":                 file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max":     file("max\n"),
			"sys/fs/cgroup/a/b/memory.current": file("7\n"),
			"sys/fs/cgroup/a/memory.max":       file("2147483648\n"),
			"sys/fs/cgroup/a/memory.current":   file("2147483647\n"),
		}, 2 * gib, 1, LimitCgroup},
		{"v1", fstest.MapFS{
			"proc/self/cgroup": file("9:name=systemd:/x\n4:cpu,memory:/c\n0::/\n"),
			"sys/fs/cgroup/memory/c/memory.limit_in_bytes": file("1073741824"),
			"sys/fs/cgroup/memory/c/memory.usage_in_bytes": file("2073741824"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   file("9223372036854771712"),
		}, 1 * gib, 0, LimitCgroup},
		{"a limit above the memory is none", fstest.MapFS{
			"proc/self/cgroup":             file("0::/\n"),
			"sys/fs/cgroup/memory.max":     file("99999999999999\n"),
			"sys/fs/cgroup/memory.current": file("1\n"),
		}, 16 * gib, 8 * gib, LimitSystem},
	} {
		c.files["proc/meminfo"] = file(meminfo)
		f := read(c.files)
		if f.TotalBytes != c.total || f.FreeBytes != c.free || f.MemoryLimit != c.limit {
			t.Errorf("%s: total %d free %d limit %q, want %d %d %q", c.name, f.TotalBytes, f.FreeBytes, f.MemoryLimit, c.total, c.free, c.limit)
		}
	}
}

func TestReadProcessor(t *testing.T) {
	f := read(fstest.MapFS{
		"proc/cpuinfo": file("processor\t: 0\nmodel name\t: Some CPU\n\nprocessor\t: 1\nmodel name\t: Some CPU\n"),
		"sys/devices/system/cpu/cpu0/cache/index1/level":    file("1\n"),
		"sys/devices/system/cpu/cpu0/cache/index1/size":     file("32K\n"),
		"sys/devices/system/cpu/cpu0/cache/index2/level":    file("2\n"),
		"sys/devices/system/cpu/cpu0/cache/index2/type":     file("Unified\n"),
		"sys/devices/system/cpu/cpu0/cache/index2/size":     file("1280K\n"),
		"sys/kernel/mm/transparent_hugepage/enabled":        file("always [madvise] never\n"),
		"sys/kernel/mm/transparent_hugepage/hpage_pmd_size": file("2097152\n"),
	})
	if f.Device != "Some CPU" || f.L2Bytes != 1280<<10 || f.HugeBytes != 2<<20 {
		t.Errorf("device %q, L2 %d, huge %d", f.Device, f.L2Bytes, f.HugeBytes)
	}
	if f.TotalBytes != 0 || f.FreeBytes != 0 {
		t.Errorf("memory without meminfo: %d, %d", f.TotalBytes, f.FreeBytes)
	}
	off := fstest.MapFS{"sys/kernel/mm/transparent_hugepage/enabled": file("always madvise [never]"),
		"sys/kernel/mm/transparent_hugepage/hpage_pmd_size": file("2097152\n")}
	if n := huge(off); n != 0 {
		t.Errorf("huge pages that are off have size %d", n)
	}
}

func TestQuota(t *testing.T) {
	for _, c := range []struct {
		files fstest.MapFS
		want  int
	}{
		{fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/cpu.max": file("max 100000\n")}, 0},
		{fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/cpu.max": file("150000 100000\n")}, 2},
		{fstest.MapFS{"proc/self/cgroup": file("3:cpu,cpuacct:/k\n"),
			"sys/fs/cgroup/cpu,cpuacct/k/cpu.cfs_quota_us":  file("400000\n"),
			"sys/fs/cgroup/cpu,cpuacct/k/cpu.cfs_period_us": file("100000\n")}, 4},
		{fstest.MapFS{"proc/self/cgroup": file("1:cpu:/\n"),
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": file("-1\n"), "sys/fs/cgroup/cpu/cpu.cfs_period_us": file("100000\n")}, 0},
	} {
		if got := quota(c.files); got != c.want {
			t.Errorf("quota %d, want %d", got, c.want)
		}
	}
}

func TestProbe(t *testing.T) {
	f, err := Probe("ref")
	if err != nil {
		t.Fatal(err)
	}
	if f.Backend != "ref" || !f.Measured || f.Cores < 1 || f.Cores > runtime.NumCPU() || f.PageBytes < 4096 {
		t.Errorf("%+v", f)
	}
	if f.MemoryLimit == LimitUnknown != (f.TotalBytes == 0) || f.FreeBytes > f.TotalBytes {
		t.Errorf("memory %d free of %d (%s)", f.FreeBytes, f.TotalBytes, f.MemoryLimit)
	}
	t.Logf("%+v", f)
}
