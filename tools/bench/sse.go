package bench

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

var errRecordSize = fmt.Errorf("a record of more than %d bytes", maxRecord)

// events reads the records of an event stream: the data lines of each, joined by line feeds. It
// skips comments and other fields, except those that report an error: an event named error, and
// llama-server's error field. A record that the end of the stream cuts off is returned if it has
// data.
type events struct {
	in   *bufio.Reader
	data []byte
	line []byte // a line longer than the reader's buffer
	// other is the beginning of the lines that are not fields of an event stream.
	other []byte
}

// next returns the data of the next record, valid until the next call, or io.EOF at the end of the
// stream. For an error event it returns an error.
func (e *events) next() ([]byte, error) {
	failed, err := e.record()
	if err == nil && failed {
		return nil, failure("error in the stream", "%s", message(e.data))
	}
	return e.data, err
}

// record reads a record into e.data.
func (e *events) record() (failed bool, err error) {
	e.data = e.data[:0]
	some := false
	for {
		line, err := e.readLine()
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
			if rest := maxOther - len(e.other); rest > 0 {
				e.other = append(append(e.other, line[:min(len(line), rest)]...), '\n')
			}
			continue
		}
		if some {
			e.data = append(e.data, '\n')
		}
		some = true
		if e.data = append(e.data, data...); len(e.data) > maxRecord {
			return false, errRecordSize
		}
	}
}

// readLine returns a line without its end; with io.EOF, the rest of the last line.
func (e *events) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		part, err := e.in.ReadSlice('\n')
		if len(e.line)+len(part) > maxRecord {
			return nil, errRecordSize
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			e.line = append(e.line, part...)
			continue
		}
		if len(e.line) > 0 {
			e.line = append(e.line, part...)
			part = e.line
		}
		part = bytes.TrimSuffix(bytes.TrimSuffix(part, []byte("\n")), []byte("\r"))
		return part, err
	}
}
