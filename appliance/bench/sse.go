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

var errRecordSize = fmt.Errorf("a record of more than %d bytes", maxRecord)

// events reads the records of an event stream: the data lines of each, joined by
// line feeds. Comments and other fields are skipped. A record that the stream's end
// cuts off is still given if its data is there.
type events struct {
	in   *bufio.Reader
	data []byte
	line []byte // of a line longer than the reader's buffer
}

// next returns the data of the next record, valid until the next call; io.EOF at the
// end of the stream.
func (e *events) next() ([]byte, error) {
	e.data = e.data[:0]
	some := false
	for {
		line, err := e.readLine()
		if err != nil && (err != io.EOF || len(line) == 0) {
			if err == io.EOF && some {
				return e.data, nil
			}
			return nil, err
		}
		if len(line) == 0 {
			if some {
				return e.data, nil
			}
			continue
		}
		data, ok := bytes.CutPrefix(line, []byte("data"))
		if !ok || len(data) > 0 && data[0] != ':' {
			continue
		}
		if len(data) > 0 {
			data = bytes.TrimPrefix(data[1:], []byte(" "))
		}
		if some {
			e.data = append(e.data, '\n')
		}
		some = true
		if e.data = append(e.data, data...); len(e.data) > maxRecord {
			return nil, errRecordSize
		}
	}
}

// readLine returns a line without its end; with io.EOF what is left of the last one.
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
