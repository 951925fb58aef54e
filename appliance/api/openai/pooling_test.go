package openai

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/pooling"
)

// TestNumbers checks the rounding to each format: to nearest, ties to even, too small
// values to zero, too large ones to infinity or NaN.
func TestNumbers(t *testing.T) {
	inf := float32(math.Inf(1))
	for name, cases := range map[string]map[float32]uint32{
		"float32":  {1: 0x3f800000, -2.5: 0xc0200000},
		"float16":  {0: 0, 1: 0x3c00, -2: 0xc000, 65504: 0x7bff, 65519: 0x7bff, 65520: 0x7c00, inf: 0x7c00, 0x1p-24: 1, 0x1p-25: 0, 0x1.8p-24: 2, 0x1p-14: 0x0400, 0x1.ffep-15: 0x03ff + 1, 1.00048828125: 0x3c00, 1.0014648: 0x3c02},
		"bfloat16": {1: 0x3f80, -1.5: 0xbfc0, 1.00390625: 0x3f80, 1.01171875: 0x3f82, 3.4e38: 0x7f80, inf: 0x7f80, 0x1p-133: 1},
		"fp8_e4m3": {1: 0x38, 448: 0x7e, 464: 0x7e, 480: 0x7f, inf: 0x7f, -1: 0xb8, 0x1p-9: 1, 0x1p-10: 0, 1.0625: 0x38, 1.1875: 0x3a},
		"fp8_e5m2": {1: 0x3c, 57344: 0x7b, 61440: 0x7c, inf: 0x7c, 0x1p-16: 1},
	} {
		for x, want := range cases {
			if got := dtypes[name].bits(x); got != want {
				t.Errorf("%s of %g is %#x, want %#x", name, x, got, want)
			}
		}
	}
	if got := dtypes["float16"].bits(float32(math.NaN())); got&0x7c00 != 0x7c00 || got&0x3ff == 0 {
		t.Errorf("NaN is %#x", got)
	}
}

// TestNumbersOfAllHalves checks that every finite float16 converts to itself.
func TestNumbersOfAllHalves(t *testing.T) {
	for b := range uint32(0x7c00) {
		e, m := int(b>>10), float64(b&0x3ff)
		x := math.Ldexp(1+m/1024, e-15)
		if e == 0 {
			x = math.Ldexp(m/1024, -14)
		}
		if got := dtypes["float16"].bits(float32(x)); got != b {
			t.Fatalf("%g is %#x, want %#x", x, got, b)
		}
	}
}

// TestBytes checks that a body of bytes has the numbers of all inputs, and that its
// metadata has the position of each input.
func TestBytes(t *testing.T) {
	p := &pooling.Output{ID: "embd-1", Model: "m", Data: []pooling.Vectors{{Values: []float32{1, -2}}, {Rows: 2, Values: []float32{1, 2, 3, 4}}}}
	w := PoolWire{Encoding: "bytes", Dtype: "float32", Big: true}
	b := w.Embeddings(p)
	if len(b.Bytes) != 24 || math.Float32frombits(binary.BigEndian.Uint32(b.Bytes[4:])) != -2 || math.Float32frombits(binary.BigEndian.Uint32(b.Bytes[20:])) != 4 {
		t.Errorf("% x", b.Bytes)
	}
	var m struct {
		ID   string
		Data []place
	}
	if err := json.Unmarshal(b.Metadata, &m); err != nil || m.ID != "embd-1" || len(m.Data) != 2 {
		t.Fatal(string(b.Metadata), err)
	}
	if d := m.Data[1]; d.Index != 1 || d.Start != 8 || d.End != 24 || d.Endianness != "big" || d.EmbedDtype != "float32" || len(d.Shape) != 2 || d.Shape[0] != 2 || d.Shape[1] != 2 {
		t.Errorf("%+v", d)
	}
	w = PoolWire{Encoding: "bytes_only", Dtype: "fp8_e5m2"}
	if b := w.Pooling(p); b.Metadata != nil || !bytes.Equal(b.Bytes, []byte{0x3c, 0xc0, 0x3c, 0x40, 0x42, 0x44}) {
		t.Errorf("% x, %s", b.Bytes, b.Metadata)
	}
}

// FuzzPooling checks that every route's decoder either refuses a body with a message or
// decodes it.
func FuzzPooling(f *testing.F) {
	for _, s := range []string{
		`{"input":"x"}`, `{"input":["a","b"],"dimensions":2,"encoding_format":"base64"}`, `{"input":[[1,2],[3]],"embed_dtype":"fp8_e4m3","endianness":"big"}`,
		`{"messages":[{"role":"user","content":"x"}],"use_activation":false}`, `{"task":"token_embed","input":[1]}`,
		`{"text_1":"a","text_2":["b",{"content":[{"type":"text","text":"c"}]}]}`, `{"query":"q","documents":["a"],"top_n":1}`, `{"queries":["a"],"items":["b"]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, decode := range []func([]byte) (*PoolRequest, error){DecodeEmbedding, DecodePooling, DecodeClassify} {
			if r, err := decode(b); (r == nil) == (err == nil) {
				t.Fatalf("%v, %v", r, err)
			} else if err != nil {
				refusedPool(t, err)
			}
		}
		for _, decode := range []func([]byte) (*ScoreRequest, error){DecodeScore, DecodeRerank} {
			r, err := decode(b)
			if err != nil {
				refusedPool(t, err)
				continue
			}
			p := &pooling.Output{}
			for i := range r.Ask.Documents {
				p.Data = append(p.Data, pooling.Vectors{Values: []float32{float32(i)}})
			}
			if !json.Valid(Scores(p)) || !json.Valid(r.Ranking(p)) {
				t.Fatal("a reply is no JSON")
			}
		}
	})
}

func refusedPool(t *testing.T, err error) {
	t.Helper()
	if e, ok := err.(*chat.Error); !ok || e.Message == "" || e.Kind != chat.Malformed && e.Kind != chat.Invalid {
		t.Fatalf("%T %v", err, err)
	}
}
