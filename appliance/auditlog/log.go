package auditlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// Limits bound the files of a log.
type Limits struct {
	MaxBytes int64 // of a file; a longer one is renamed to FILE.1
	Keep     int   // renamed files FILE.1, the newest, to FILE.Keep; at least 1
}

// Log appends entries to a file. It is safe for concurrent use. The file is opened with the first
// entry, and again with the next one after an error.
type Log struct {
	path   string
	onFail func(error) // called with the first error of a row, and with nil when entries are written again

	mu     sync.Mutex
	limits Limits
	file   *os.File // nil: not open
	size   int64
	begun  bool // seq and last are those of the file
	seq    int64
	last   State
	lost   int64
	failed bool
}

// New returns the log in the file at path. onFail is called without other calls at the same time; it
// must not call the log.
func New(path string, l Limits, onFail func(error)) *Log {
	return &Log{path: path, limits: l, onFail: onFail}
}

// SetLimits changes the limits for the next entries.
func (l *Log) SetLimits(to Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits = to
}

// Lost returns the number of entries that could not be written.
func (l *Log) Lost() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Failed reports whether the newest entry could not be written.
func (l *Log) Failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Add sets Seq and Before of an entry, and appends it. Before is the state after the entry before, also
// if that one was lost or is of an earlier run of the server.
func (l *Log) Add(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.open()
	l.seq++
	e.Seq, e.Before, l.last = l.seq, l.last, e.After
	if err == nil {
		err = l.write(e)
	}
	if err != nil {
		l.lost++
	}
	if was := l.failed; was != (err != nil) {
		l.failed = err != nil
		l.onFail(err)
	}
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.close()
}

func (l *Log) close() error {
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}

// open opens the file. A file that was removed or renamed by others is created again. The first time
// it reads where the chain of the file ends.
func (l *Log) open() error {
	named, err := os.Stat(l.path)
	switch {
	case err == nil && !named.Mode().IsRegular():
		return errors.Join(fmt.Errorf("%s is no regular file", l.path), l.close())
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return errors.Join(err, l.close())
	}
	if l.file != nil {
		if open, failed := l.file.Stat(); err == nil && failed == nil && os.SameFile(open, named) {
			return nil
		}
		_ = l.close() // others took the file away
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && !l.begun {
		err = l.resume(size)
	}
	if err == nil && size > 0 {
		size, err = endLine(f, size)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, size
	return nil
}

// resume reads seq and state of the last entry of the files.
func (l *Log) resume(size int64) error {
	name := l.path
	if size == 0 {
		name = rotated(l.path, 1)
	}
	var end Entry
	err := scanFile(name, func(r Record) {
		if r.Err == nil {
			end = r.Entry
		}
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if l.begun = true; l.seq == 0 { // no entry was lost before
		l.last = end.After
	}
	l.seq += end.Seq
	return nil
}

// endLine ends a last line that was not written whole. It returns the size of the file.
func endLine(f *os.File, size int64) (int64, error) {
	var end [1]byte
	if _, err := f.ReadAt(end[:], size-1); err != nil || end[0] == '\n' {
		return size, err
	}
	n, err := f.Write([]byte{'\n'})
	return size + int64(n), err
}

// write appends an entry, to a new file if the present one would become too long. Of a line that
// cannot be written whole nothing stays.
func (l *Log) write(e Entry) error {
	line, err := encode(e)
	if err != nil {
		return err
	}
	if l.size > 0 && l.size+int64(len(line)) > l.limits.MaxBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	n, err := l.file.Write(line)
	if err == nil {
		l.size += int64(n)
		return nil
	}
	return errors.Join(reason(err), l.file.Truncate(l.size), l.close())
}

// rotate renames the files and opens an empty one. It removes the files beyond Limits.Keep, which may have been
// greater before.
func (l *Log) rotate() error {
	if err := l.close(); err != nil {
		return err
	}
	for i := l.limits.Keep + 1; ; i++ {
		if err := os.Remove(rotated(l.path, i)); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
	}
	for i := l.limits.Keep; i > 0; i-- {
		from := l.path
		if i > 1 {
			from = rotated(l.path, i-1)
		}
		if err := os.Rename(from, rotated(l.path, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return l.open()
}

// encode returns the line of an entry. Long texts are cut until the line is no longer than maxLine.
func encode(e Entry) ([]byte, error) {
	for most := maxLine / 8; ; most /= 2 {
		var b bytes.Buffer
		j := json.NewEncoder(&b)
		j.SetEscapeHTML(false)
		if err := j.Encode(e); err != nil || b.Len() <= maxLine {
			return b.Bytes(), err
		}
		e.Changes, e.Pending, e.Lost = cutList(e.Changes, most), cutList(e.Pending, most), cutList(e.Lost, most)
		e.Error, e.Note = cut(e.Error, most), cut(e.Note, most)
	}
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// cutList returns the elements up to most bytes in all.
func cutList(list []string, most int) []string {
	for i, s := range list {
		if most -= len(s); most < 0 {
			return append(append([]string{}, list[:i]...), fmt.Sprintf("… %d more", len(list)-i))
		}
	}
	return list
}

// rotated returns the name of a renamed file.
func rotated(path string, n int) string { return fmt.Sprintf("%s.%d", path, n) }

// reason returns the system's reason of a failed write, without the path.
func reason(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}
