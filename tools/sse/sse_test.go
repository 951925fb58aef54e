package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestReader checks the data of records, for all line endings and with other fields in the stream.
func TestReader(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for text, want := range map[string][]string{
		"data: a\n\ndata: b\n\n":                       {"a", "b"},
		"data:a\r\n\r\ndata: b\r\n\r\n":                {"a", "b"},
		": ping\n\nevent: e\nid: 1\ndata: a\n\n\n\n":   {"a"},
		"data: a\ndata: b\n\n":                         {"a\nb"},
		"data: cut off":                                {"cut off"},
		"data\n\ndatax: no\n\ndata:  two spaces\n\n":   {"", " two spaces"},
		"data: " + long + "\n\ndata: " + long + "\n\n": {long, long},
		"": nil,
	} {
		for name, in := range map[string]io.Reader{"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
			e := NewReader(bufio.NewReaderSize(in, 64))
			var got []string
			for {
				r, _, err := e.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(r))
			}
			if strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
				t.Errorf("%.40q, %s: %.60q, want %.60q", text, name, got, want)
			}
		}
	}
}

// TestFailed checks which records are reported as errors.
func TestFailed(t *testing.T) {
	for text, want := range map[string]bool{
		"event: error\ndata: a\n\n":           true,
		"error: a\n\n":                        true,
		"event: error\n\ndata: a\n\n":         false,
		"event: message\ndata: error\n\n":     false,
		"event: error\nevent: x\ndata: a\n\n": true,
	} {
		if _, failed, err := NewReader(bufio.NewReader(strings.NewReader(text))).Next(); failed != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", text, failed, err, want)
		}
	}
}

// TestSize checks that a record of one endless line, and one of endless lines, end with ErrSize,
// and that other lines are kept up to their bound.
func TestSize(t *testing.T) {
	line := "data: " + strings.Repeat("x", maxRecord/8) + "\n"
	for name, text := range map[string]string{"a line": "data: " + strings.Repeat("x", maxRecord+1), "lines": strings.Repeat(line, 9)} {
		if _, _, err := NewReader(bufio.NewReader(strings.NewReader(text))).Next(); !errors.Is(err, ErrSize) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := NewReader(bufio.NewReader(strings.NewReader(strings.Repeat("<html>\n", 1000))))
	if _, _, err := r.Next(); err != io.EOF || len(r.Other()) > maxOther+1 || !strings.HasPrefix(string(r.Other()), "<html>\n<html>") {
		t.Errorf("%v: %d bytes kept", err, len(r.Other()))
	}
}

// FuzzReader checks that every stream ends, and that the records have no more bytes than it.
func FuzzReader(f *testing.F) {
	f.Add([]byte("data: a\ndata: b\r\n\nevent: error\ndata: {}\n\n: c\n<html>"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := NewReader(bufio.NewReaderSize(bytes.NewReader(text), 64))
		size := 0
		for range len(text) + 2 {
			data, _, err := r.Next()
			if err != nil {
				return
			}
			if size += len(data); size > len(text) || bytes.HasSuffix(data, []byte("\r")) && !bytes.Contains(text, []byte("\r\r")) {
				t.Fatalf("%q: %d bytes of records, the last is %q", text, size, data)
			}
		}
		t.Fatal("the stream does not end")
	})
}
