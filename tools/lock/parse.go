package lock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
)

// Bounds of a lock file.
const (
	MaxBytes = 4 << 20
	maxFiles = 10_000
)

// Error is a lock file that cannot be used.
type Error struct{ File, Reason string }

func (e *Error) Error() string {
	return fmt.Sprintf("%s: not a lock that this vapp can use: %s; write a new one with `vapp lock`", e.File, e.Reason)
}

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Parse parses the content of a lock file. Its error is an *Error with this name.
func Parse(name string, data []byte) (*Lock, error) {
	bad := func(format string, args ...any) (*Lock, error) {
		return nil, &Error{name, oneLine(fmt.Sprintf(format, args...))}
	}
	if len(data) > MaxBytes {
		return bad("more than %d bytes", MaxBytes)
	}
	var which struct {
		Version *int `json:"lock_version"`
	}
	if err := json.Unmarshal(data, &which); err != nil {
		return bad("%v", err)
	}
	if which.Version == nil || *which.Version != Version {
		return bad("lock_version is not %d", Version)
	}
	l := &Lock{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(l); err != nil {
		return bad("%v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return bad("more than one value")
	}
	if why := l.wrong(); why != "" {
		return bad("%s", why)
	}
	return l, nil
}

// wrong returns what is invalid in the lock, "" where it is valid.
func (l *Lock) wrong() string {
	if !digest.MatchString(l.Profile.SHA256) {
		return "profile.sha256 is not 64 hex digits"
	}
	if len(l.Checkpoint.Files) > maxFiles {
		return fmt.Sprintf("more than %d files", maxFiles)
	}
	seen := map[string]bool{}
	for _, f := range l.Checkpoint.Files {
		switch {
		case f.Name == "" || path.IsAbs(f.Name) || path.Clean(f.Name) != f.Name || f.Name == ".." || strings.HasPrefix(f.Name, "../"):
			return fmt.Sprintf("checkpoint file %q is not a name in a folder", f.Name)
		case seen[f.Name]:
			return fmt.Sprintf("checkpoint file %q is listed twice", f.Name)
		case f.Size < 0 || !digest.MatchString(f.SHA256):
			return fmt.Sprintf("checkpoint file %q has no size or hash", f.Name)
		}
		seen[f.Name] = true
	}
	return ""
}
