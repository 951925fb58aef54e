package mutate

import (
	"bytes"
	"encoding/json"
	"sort"
	"strings"
)

// encode returns a value as JSON, raw pieces unchanged, and sometimes with a name twice.
func (m *Maker) encode(v any) []byte {
	var b bytes.Buffer
	m.write(&b, v)
	return b.Bytes()
}

func (m *Maker) write(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case raw:
		b.WriteString(string(v))
	case map[string]any:
		names := make([]string, 0, len(v))
		for k := range v {
			names = append(names, k)
		}
		sort.Strings(names)
		if len(names) > 0 && m.rnd.IntN(40) == 0 {
			names = append(names, names[m.rnd.IntN(len(names))])
		}
		b.WriteByte('{')
		for i, k := range names {
			if i > 0 {
				b.WriteByte(',')
			}
			name, _ := json.Marshal(k)
			b.Write(append(name, ':'))
			m.write(b, v[k])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			m.write(b, x)
		}
		b.WriteByte(']')
	default:
		text, err := json.Marshal(v)
		if err != nil {
			panic("mutate: " + err.Error())
		}
		b.Write(text)
	}
}

// envelope sometimes changes the body, the method, the path or the headers of a request.
func (m *Maker) envelope(r *Request) {
	done := func(how string) { r.How = append(r.How, how) }
	switch m.rnd.IntN(24) {
	case 0:
		if len(r.Body) > 0 {
			r.Body = r.Body[:m.rnd.IntN(len(r.Body))]
			done("cut short")
		}
	case 1:
		if len(r.Body) > 0 {
			r.Body = bytes.Clone(r.Body)
			for range 1 + m.rnd.IntN(4) {
				r.Body[m.rnd.IntN(len(r.Body))] = byte(m.rnd.IntN(256))
			}
			done("bytes changed")
		}
	case 2:
		if r.Body != nil {
			r.Body = []byte(pick(m.rnd, "", " ", "null", "[]", "1", `""`, "{", "{}{}", "{}]", "true", "\xef\xbb\xbf{}", "messages=x", "<a/>", "{\"a\":1,}", "{'a':1}", "// x\n{}"))
			done("another body")
		}
	case 3:
		if kind := pick(m.rnd, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json; charset=utf-16",
			"application/", ";;;", "application/json, text/plain", "APPLICATION/JSON", "application/octet-stream"); r.Body != nil {
			r.Header["Content-Type"] = kind
			if kind == "" {
				delete(r.Header, "Content-Type")
			}
			done("media type " + kind)
		}
	case 4:
		r.Method = pick(m.rnd, "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "PROPFIND")
		done("another method")
	case 5:
		r.Path = pick(m.rnd, "/nothing", r.Path+"/", "/"+r.Path, r.Path+"/x", "/v1", r.Path+"?stream=true&%00=1", "/v1/models/%2e%2e%2f", strings.ToUpper(r.Path))
		done("another path")
	case 6:
		r.Header["X-Request-Id"] = pick(m.rnd, strings.Repeat("x", 5000), "a\tb", "é", "<script>", "")
		done("odd request id")
	case 7:
		r.Header["Accept-Encoding"], r.Header["Endpoint-Load-Metrics-Format"] = "gzip;q=x", pick(m.rnd, "TEXT", "JSON", "BIN", "")
		r.Header["Traceparent"], r.Header["X-Data-Parallel-Rank"] = "00-zz", "one"
		done("odd headers")
	}
}
