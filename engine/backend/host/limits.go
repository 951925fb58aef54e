package host

import (
	"io/fs"
	"strings"

	"vapp.dev/engine/backend"
)

// systemStack is the stack size of a thread if the system sets no limit: that of glibc on
// x86-64.
const systemStack = 2 << 20

// limits returns the limits on this process's memory that are set.
func limits(root fs.FS) []backend.ProcessLimit {
	all, status := text(root, "proc/self/limits"), fields(text(root, "proc/self/status"))
	stack := softLimit(all, "Max stack size")
	if stack == 0 {
		stack = systemStack
	}
	var out []backend.ProcessLimit
	for _, l := range []struct{ name, line, used string }{
		{backend.AddressSpace, "Max address space", "VmSize"},
		{backend.DataSize, "Max data size", "VmData"},
	} {
		if n := softLimit(all, l.line); n > 0 {
			out = append(out, backend.ProcessLimit{Name: l.name, Limit: n, Used: status[l.used] << 10, Stack: stack})
		}
	}
	return out
}

// softLimit reads a line of /proc/self/limits; 0: no limit.
func softLimit(all, name string) int64 {
	for line := range strings.Lines(all) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if w := strings.Fields(rest); len(w) > 0 {
				return number(w[0])
			}
		}
	}
	return 0
}
