package appliance

import (
	"os"
	"strconv"
	"strings"
)

// processUse returns the resident memory and the threads of this process; ok is false if the system does
// not report them.
func processUse() (u use, ok bool) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return use{}, false
	}
	return parseProcessStatus(string(status))
}

// parseProcessStatus reads /proc/PID/status.
func parseProcessStatus(text string) (u use, ok bool) {
	rss, known := statusNumber(text, "\nVmRSS:")
	threads, also := statusNumber(text, "\nThreads:")
	return use{rss << 10, threads}, known && also
}

// statusNumber returns the number after a name.
func statusNumber(text, name string) (int64, bool) {
	_, rest, ok := strings.Cut(text, name)
	line, _, _ := strings.Cut(rest, "\n")
	words := strings.Fields(line)
	if !ok || len(words) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(words[0], 10, 64)
	return n, err == nil
}
