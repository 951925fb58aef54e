package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"vapp.dev/tools/sse"
)

// TestChunk checks the values read from records of several servers.
func TestChunk(t *testing.T) {
	for text, want := range map[string]chunk{
		`{"choices":[{"index":0,"text":" a\n\u00e9\ud83d\ude00","finish_reason":null}],"usage":null}`:            {choices: true, text: []byte(" a\né😀"), prompt: -1, completion: -1},
		`{"choices":[{"delta":{"role":"assistant","content":"x"},"finish_reason":"stop"},{"text":"other"}]}`:     {choices: true, finished: true, text: []byte("x"), prompt: -1, completion: -1},
		`{"choices":[{"delta":{"reasoning":"r","content":null}}]}`:                                               {choices: true, text: []byte("r"), prompt: -1, completion: -1},
		` { "choices" : [ ] , "usage" : { "prompt_tokens" : 4 , "completion_tokens":3.0e0,"details":{"a":[1]}}}`: {prompt: 4, completion: 3},
		`{"choices":[{"text":""}]}`:                 {choices: true, prompt: -1, completion: -1},
		`{"error":"gone"}`:                          {failed: []byte("gone"), prompt: -1, completion: -1},
		`{"error":{"code":5,"message":"no \"x\""}}`: {failed: []byte(`no "x"`), prompt: -1, completion: -1},
		`{"error":null,"choices":null}`:             {prompt: -1, completion: -1},
	} {
		var got chunk
		if err := got.read([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got.choices != want.choices || got.finished != want.finished || !bytes.Equal(got.text, want.text) || got.prompt != want.prompt ||
			got.completion != want.completion || string(got.failed) != string(want.failed) || (got.failed == nil) != (want.failed == nil) {
			t.Errorf("%s: %+v %q %q", text, got, got.text, got.failed)
		}
	}
	for _, text := range []string{"", "{", "[]", "null", `{"a":1}x`, `{"a":01}`, `{"a":}`, `{"a":1,}`, `{"choices":[{"text":"\x"}]}`, "{\"a\":\"\n\"}", `{"usage":{"completion_tokens":1.5}}`} {
		var c chunk
		if err := c.read([]byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// FuzzStream checks that no stream makes the reader panic or buffer more than one record, and that
// records are accepted or refused as by encoding/json.
func FuzzStream(f *testing.F) {
	f.Add([]byte(record("a") + usage3 + done))
	f.Add([]byte("event: error\ndata: {\"object\":\"error\",\"message\":\"m\"}\n\nerror: x\n\n<html>"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"\\ud83d\\u0041\"}}]}\r\n\r\n:c\n\ndata: {\"error\":{}}\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		e := sse.NewReader(bufio.NewReaderSize(bytes.NewReader(text), 64))
		for range len(text) + 2 {
			r, failed, err := e.Next()
			if err != nil || failed {
				return
			}
			var c chunk
			err = c.read(r)
			var o map[string]json.RawMessage
			valid := json.Unmarshal(r, &o) == nil && o != nil
			deep := bytes.Count(r, []byte("[")) + bytes.Count(r, []byte("{"))
			if valid != (err == nil) && deep < maxDepth && (valid || !strings.HasPrefix(string(r), "null")) && broken(err) != "impossible usage" {
				t.Fatalf("%q: %v, encoding/json: %v", r, err, valid)
			}
		}
		t.Fatal("the stream does not end")
	})
}

// FuzzCounters checks that no /metrics text makes the reader panic or allocate without bound.
func FuzzCounters(f *testing.F) {
	f.Add([]byte("vllm:spec_decode_num_drafts_total{engine=\"0\"} 3\nvllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} 2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s := counters(text); s != nil && len(s.Positions) > maxPositions {
			t.Fatal(len(s.Positions))
		}
	})
}

// BenchmarkChunk measures what a client spends on one token.
func BenchmarkChunk(b *testing.B) {
	r := []byte(`{"id":"cmpl-0123456789abcdef","object":"text_completion","created":1760000000,"model":"meta-llama/Llama-3.2-1B","choices":[{"index":0,"text":" hello","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}`)
	b.ReportAllocs()
	var c chunk
	for b.Loop() {
		c.text = c.text[:0]
		if err := c.read(r); err != nil {
			b.Fatal(err)
		}
	}
}
