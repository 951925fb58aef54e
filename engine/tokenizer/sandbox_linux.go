package tokenizer

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childAttributes has a child die with the thread that started it, and keeps the signals of a
// terminal from it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// programOf returns the file to run for a program: for this process's own program the one
// that runs, also when its file was replaced or deleted since.
func programOf(exe, path string) string {
	if own, err := os.Executable(); err == nil && own == exe {
		return "/proc/self/exe"
	}
	return path
}

// firstToDie makes this process the first choice of a system that is short of memory. Where
// the file cannot be written, the choice is the system's: the limit of memory holds either way.
func firstToDie() { _ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) }

// limitMemory bounds this process's private memory, and its address space, to what it has now
// and bytes more, and keeps it from writing a core when it runs into that.
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
		{"address space", unix.RLIMIT_AS, uint64(size*page + bytes)},
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

// privateMemory returns the memory of this process that is no file's; false: it is not known.
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
