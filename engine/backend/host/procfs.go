package host

import (
	"bufio"
	"bytes"
	"io/fs"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
)

// maxFile bounds how much is read of a file of /proc or /sys; x86's cpuinfo has about 1.5 KB
// for every CPU.
const maxFile = 8 << 20

// read collects the facts in the files of a Linux system; root is "/".
func read(root fs.FS) backend.Facts {
	f := backend.Facts{MemoryLimit: LimitSystem}
	mem := fields(text(root, "proc/meminfo"))
	f.TotalBytes = mem["MemTotal"] << 10
	f.FreeBytes = mem["MemAvailable"] << 10
	for _, g := range groups(root) {
		if g.limit > 0 && g.limit < f.TotalBytes {
			f.TotalBytes, f.MemoryLimit = g.limit, LimitCgroup
		}
		if g.limit > 0 {
			f.FreeBytes = max(0, min(f.FreeBytes, g.limit-g.used))
		}
	}
	f.Limits = limits(root)
	f.Device = processor(root)
	f.L2Bytes = cache(root, 2)
	f.HugeBytes = huge(root)
	f.Nodes = nodes(root)
	return f
}

// text returns a small file's content, trimmed; "" if it cannot be read.
func text(root fs.FS, name string) string {
	f, err := root.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	var b bytes.Buffer
	buf := make([]byte, 64<<10)
	for b.Len() < maxFile {
		n, err := f.Read(buf)
		b.Write(buf[:n])
		if err != nil || n == 0 {
			break
		}
	}
	return strings.TrimSpace(b.String())
}

// fields reads "Name: 123 kB" and "name 123" lines.
func fields(s string) map[string]int64 {
	m := map[string]int64{}
	for line := range strings.Lines(s) {
		w := strings.Fields(line)
		if len(w) < 2 {
			continue
		}
		if n, err := strconv.ParseInt(w[1], 10, 64); err == nil {
			m[strings.TrimSuffix(w[0], ":")] = n
		}
	}
	return m
}

// processor returns the name in /proc/cpuinfo: "model name" on x86, "Processor" or "Model" on
// some ARM systems.
func processor(root fs.FS) string {
	names := map[string]string{}
	sc := bufio.NewScanner(strings.NewReader(text(root, "proc/cpuinfo")))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		k, v, ok := strings.Cut(sc.Text(), ":")
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		if ok && v != "" && names[k] == "" {
			names[k] = v
		}
	}
	for _, k := range []string{"model name", "Processor", "Model", "cpu model"} {
		if names[k] != "" {
			return names[k]
		}
	}
	return ""
}

// cache returns the size of the first CPU's data or unified cache of a level.
func cache(root fs.FS, level int) int64 {
	const dir = "sys/devices/system/cpu/cpu0/cache"
	entries, _ := fs.ReadDir(root, dir)
	for _, e := range entries {
		at := dir + "/" + e.Name() + "/"
		if text(root, at+"level") == strconv.Itoa(level) && text(root, at+"type") != "Instruction" {
			return size(text(root, at+"size"))
		}
	}
	return 0
}

// size reads "1024K", "2M" or plain bytes.
func size(s string) int64 {
	shift := 0
	switch {
	case strings.HasSuffix(s, "K"):
		shift = 10
	case strings.HasSuffix(s, "M"):
		shift = 20
	}
	n, err := strconv.ParseInt(strings.TrimRight(s, "KM"), 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0
	}
	return n << shift
}

// huge returns the size of a transparent huge page; 0 if they are off.
func huge(root fs.FS) int64 {
	const dir = "sys/kernel/mm/transparent_hugepage/"
	if mode := text(root, dir+"enabled"); mode == "" || strings.Contains(mode, "[never]") {
		return 0
	}
	return size(text(root, dir+"hpage_pmd_size"))
}
