package tokenizer

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childAttributes makes a child die with the thread that started it, and shields it from the
// terminal's signals.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// programOf returns the path from which to run a program. For this process's own program that is
// the running file, even if the file was replaced or deleted since.
func programOf(exe, path string) string {
	if own, err := os.Executable(); err == nil && own == exe {
		return "/proc/self/exe"
	}
	return path
}

// firstToDie makes the kernel kill this process first if the system runs out of memory. It ignores
// failure: the memory limit applies in any case.
func firstToDie() { _ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) }

// heapArena is the address space that the Go heap reserves when it outgrows an arena. Where in the
// first arena the heap begins is random, so the end may be close.
const heapArena = 64 << 20

// limitMemory limits this process's private memory to its present size plus bytes, and its address
// space to that plus one arena of the Go heap. It disables core dumps.
func limitMemory(bytes int64) error {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return fmt.Errorf("reading this process's size: %w", err)
	}
	var size, resident, shared, text, library, data int64
	if _, err := fmt.Sscan(string(statm), &size, &resident, &shared, &text, &library, &data); err != nil {
		return fmt.Errorf("reading this process's size: %w", err)
	}
	page := int64(os.Getpagesize())
	for _, l := range []struct {
		name  string
		which int
		most  uint64
	}{
		{"core size", unix.RLIMIT_CORE, 0},
		{"memory", unix.RLIMIT_DATA, uint64(data*page + bytes)},
		{"address space", unix.RLIMIT_AS, uint64(size*page + bytes + heapArena)},
	} {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.which, &now); err != nil {
			return fmt.Errorf("reading the limit of %s: %w", l.name, err)
		}
		most := min(l.most, now.Cur, now.Max)
		if err := unix.Setrlimit(l.which, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limiting %s: %w", l.name, err)
		}
	}
	return nil
}

// privateMemory returns this process's memory that is not backed by a file; known is false if the
// system does not report it.
func privateMemory() (m privateBytes, known bool) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return m, false
	}
	kib := map[string]int64{}
	for line := range strings.Lines(string(status)) {
		var name string
		var n int64
		if _, err := fmt.Sscanf(line, "%s %d kB", &name, &n); err == nil {
			kib[name] = n
		}
	}
	anon, known := kib["RssAnon:"]
	return privateBytes{anon << 10, (kib["VmHWM:"] - kib["RssFile:"] - kib["RssShmem:"]) << 10}, known
}

// processTime returns the processor time that this process has used.
func processTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
