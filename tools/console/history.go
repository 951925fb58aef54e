package console

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// Bounds of the history file.
const (
	maxHistory      = 1000     // entries
	maxHistoryBytes = 1 << 20  // of the file
	maxEntry        = 16 << 10 // bytes of an entry; a longer one is not kept
)

// History is the list of earlier lines: a file of JSON texts, one a line, or memory only.
type History struct {
	path  string // "": memory only
	lines []string
}

// HistoryPath returns the history file in the user's state directory, "" where there is none.
func HistoryPath() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "vapp", "chat-history")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "vapp", "chat-history")
}

// OpenHistory reads the history of a file; path "" keeps the lines in memory only. A file that is
// not readable is an empty history.
func OpenHistory(path string) *History {
	h := &History{path: path}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > 4*maxHistoryBytes {
		return h
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return h
	}
	for line := range strings.Lines(string(text)) {
		var entry string
		if json.Unmarshal([]byte(line), &entry) == nil && entry != "" && len(entry) <= maxEntry {
			h.lines = append(h.lines, entry)
		}
	}
	h.trim()
	return h
}

// trim drops the oldest lines above the bounds.
func (h *History) trim() {
	size, keep := 0, 0
	for i := len(h.lines) - 1; i >= 0 && keep < maxHistory; i-- {
		if size += len(h.lines[i]) + 4; size > maxHistoryBytes {
			break
		}
		keep++
	}
	h.lines = h.lines[len(h.lines)-keep:]
}

// Write adds a line and writes the file, readable by its owner only. A line that is empty or the
// same as the one before is not added.
func (h *History) Write(line string) (int, error) {
	line = strings.TrimSpace(line)
	if line == "" || len(line) > maxEntry || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return len(h.lines), nil
	}
	h.lines = append(h.lines, line)
	h.trim()
	if h.path == "" {
		return len(h.lines), nil
	}
	return len(h.lines), h.store()
}

// store replaces the file.
func (h *History) store() error {
	dir := filepath.Dir(h.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".chat-history-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename
	e := json.NewEncoder(f)
	for _, line := range h.lines {
		if err := e.Encode(line); err != nil {
			f.Close()
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), h.path)
}

// GetLine returns a line; 0 is the oldest.
func (h *History) GetLine(i int) (string, error) {
	if i < 0 || i >= len(h.lines) {
		return "", os.ErrNotExist
	}
	return h.lines[i], nil
}

// Len returns the number of lines.
func (h *History) Len() int { return len(h.lines) }

// Dump returns the lines.
func (h *History) Dump() any { return h.lines }
