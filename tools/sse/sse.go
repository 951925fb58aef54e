// Package sse reads event streams ("server-sent events") of OpenAI-compatible servers. It must not
// import net/http or other packages of this module: its callers open the streams and read the JSON
// of the records. Start reading at Reader.Next.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxRecord bounds one record of a stream, in bytes.
const maxRecord = 4 << 20

// maxOther bounds the kept bytes of lines that are not part of an event stream.
const maxOther = 800

// ErrSize means that a record is too long. Reading cannot continue.
var ErrSize = fmt.Errorf("a record of more than %d bytes", maxRecord)

// Reader reads the records of an event stream: the data lines of each, joined by line feeds. It
// skips comments and other fields, except those that report an error: an event named error, and
// llama-server's error field. A record that the end of the stream cuts off is returned if it has
// data.
type Reader struct {
	in   *bufio.Reader
	data []byte
	line []byte // a line longer than the reader's buffer
	// other is the beginning of the lines that are not fields of an event stream.
	other []byte
}

// NewReader returns a reader of the stream in.
func NewReader(in *bufio.Reader) *Reader { return &Reader{in: in} }

// Other returns the beginning of the lines that are not fields of an event stream, nil where there
// are none.
func (r *Reader) Other() []byte { return r.other }

// Next returns the data of the next record, valid until the next call, or io.EOF at the end of the
// stream. failed reports that the record is an error event.
func (r *Reader) Next() (data []byte, failed bool, err error) {
	failed, err = r.record()
	return r.data, failed, err
}

// record reads a record into r.data.
func (r *Reader) record() (failed bool, err error) {
	r.data = r.data[:0]
	some := false
	for {
		line, err := r.readLine()
		if err != nil && (err != io.EOF || len(line) == 0) {
			if err == io.EOF && some {
				return failed, nil
			}
			return false, err
		}
		if len(line) == 0 {
			if some {
				return failed, nil
			}
			failed = false // an event without data is ignored
			continue
		}
		name, data, _ := bytes.Cut(line, []byte(":"))
		data = bytes.TrimPrefix(data, []byte(" "))
		switch string(name) {
		case "data":
		case "error":
			failed = true
		case "event":
			failed = failed || string(data) == "error"
			continue
		case "", "id", "retry":
			continue
		default:
			if rest := maxOther - len(r.other); rest > 0 {
				r.other = append(append(r.other, line[:min(len(line), rest)]...), '\n')
			}
			continue
		}
		if some {
			r.data = append(r.data, '\n')
		}
		some = true
		if r.data = append(r.data, data...); len(r.data) > maxRecord {
			return false, ErrSize
		}
	}
}

// readLine returns a line without its end; with io.EOF, the rest of the last line.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		part, err := r.in.ReadSlice('\n')
		if len(r.line)+len(part) > maxRecord {
			return nil, ErrSize
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			r.line = append(r.line, part...)
			continue
		}
		if len(r.line) > 0 {
			r.line = append(r.line, part...)
			part = r.line
		}
		part = bytes.TrimSuffix(bytes.TrimSuffix(part, []byte("\n")), []byte("\r"))
		return part, err
	}
}
