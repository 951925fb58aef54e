package cuda

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// stacksTable has a line "kernel architecture bytes" for each kernel that has a stack: local memory of a thread, which is
// what spills and arrays take. TestRegistersPage compares it with the compiler's report and writes it; scripts/kernels.sh
// spills fails where a kernel has more.
//
//go:embed stacks.tsv
var stacksTable string

var stacks = sync.OnceValue(func() map[string]map[string]int { // by architecture and kernel
	out := map[string]map[string]int{}
	for line := range strings.Lines(stacksTable) {
		var kernel, arch string
		var bytes int
		if _, err := fmt.Sscan(line, &kernel, &arch, &bytes); err != nil {
			panic("kernels/cuda: stacks.tsv: " + line) // of this package; TestStacks reads it
		}
		if out[arch] == nil {
			out[arch] = map[string]int{}
		}
		out[arch][kernel] = bytes
	}
	return out
})

// StackBytes returns the largest stack of a thread, in bytes, of the kernels of an architecture (Architecture.Name), and
// the kernel that has it; 0 if none has one. For an architecture without machine code it is that of all architectures:
// the driver compiles the PTX.
func StackBytes(arch string) (bytes int, kernel string) {
	known := false
	for _, a := range Architectures() {
		known = known || a.Name == arch
	}
	for a, of := range stacks() {
		for k, n := range of {
			if (a == arch || !known) && (n > bytes || n == bytes && k < kernel) {
				bytes, kernel = n, k
			}
		}
	}
	return bytes, kernel
}
