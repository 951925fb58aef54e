package auditlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Record is one line of a file: an entry, or why it is none.
type Record struct {
	File  string
	Line  int
	Entry Entry
	Err   error
}

// Scan reads a log from its oldest renamed file to its newest entry, and calls each with every line that
// is not empty. It returns an error if a file cannot be read.
func Scan(path string, each func(Record)) error {
	var list []string
	for i := 1; ; i++ {
		name := rotated(path, i)
		if _, err := os.Stat(name); err != nil {
			break
		}
		list = append([]string{name}, list...)
	}
	for _, name := range append(list, path) {
		if err := scanFile(name, each); err != nil {
			return err
		}
	}
	return nil
}

func scanFile(name string, each func(Record)) error {
	if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(scan(f, name, each), f.Close())
}

// scan calls each with the lines of a file. Of a line of more than maxLine bytes it keeps nothing.
func scan(in io.Reader, name string, each func(Record)) error {
	r := bufio.NewReaderSize(in, 64<<10)
	var line []byte
	long, n := false, 1
	end := func() {
		switch text := bytes.TrimSpace(line); {
		case long:
			each(Record{File: name, Line: n, Err: fmt.Errorf("the line has more than %d bytes", maxLine)})
		case len(text) > 0:
			e, err := decode(text)
			each(Record{name, n, e, err})
		}
		line, long, n = line[:0], false, n+1
	}
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxLine+1 {
			long, line = true, line[:0]
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case err == nil:
			end()
		case errors.Is(err, io.EOF):
			end()
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// decode reads a line. An entry has a number, an event and a time.
func decode(text []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(text, &e); err != nil {
		return Entry{}, fmt.Errorf("no entry of an audit log: %w", err)
	}
	if e.Seq < 1 || e.Event == "" || e.At.IsZero() {
		return Entry{}, errors.New("no entry of an audit log: seq, event or at is missing")
	}
	return e, nil
}

// Chain checks that entries follow one another. The first one may follow entries that rotation deleted.
type Chain struct {
	last  Entry
	begun bool
}

// Break is a place where entries do not follow one another, or a line that is no entry.
type Break struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Why  string `json:"why"`
}

// String returns FILE:LINE: WHY.
func (b Break) String() string { return fmt.Sprintf("%s:%d: %s", b.File, b.Line, b.Why) }

// Check returns how a record breaks the chain; nil: it does not.
func (c *Chain) Check(r Record) *Break {
	broken := func(format string, args ...any) *Break {
		return &Break{r.File, r.Line, fmt.Sprintf(format, args...)}
	}
	if r.Err != nil {
		return broken("%v", r.Err)
	}
	last, begun, e := c.last, c.begun, r.Entry
	c.last, c.begun = e, true
	switch {
	case !begun:
		return nil
	case e.Seq == last.Seq+2:
		return broken("entry %d is missing", last.Seq+1)
	case e.Seq > last.Seq+1:
		return broken("entries %d to %d are missing", last.Seq+1, e.Seq-1)
	case e.Seq != last.Seq+1:
		return broken("entry %d follows entry %d", e.Seq, last.Seq)
	case e.Before != last.After:
		return broken("before entry %d was in force %v, after entry %d %v: a line was changed", e.Seq, e.Before, last.Seq, last.After)
	}
	return nil
}

// String returns the beginnings of the hashes.
func (s State) String() string {
	if s == (State{}) {
		return "nothing"
	}
	return "profile " + Short(s.Profile) + " plan " + Short(s.Plan)
}

// Short returns the beginning of a hash, "-" for none.
func Short(hash string) string {
	if hash == "" {
		return "-"
	}
	return hash[:min(len(hash), 12)]
}
