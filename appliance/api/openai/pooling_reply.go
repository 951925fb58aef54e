package openai

import (
	"sort"

	"vapp.dev/appliance/chat/pooling"
)

// PoolBody is the body of a reply: JSON, or bytes that Metadata describes.
type PoolBody struct {
	JSON     []byte
	Bytes    []byte
	Metadata []byte // JSON, for encoding_format "bytes"; else nil
}

type vectorItem struct {
	Index  int    `json:"index"`
	Object string `json:"object"`
	// Embedding is set for /v1/embeddings, Data for /pooling.
	Embedding any `json:"embedding,omitempty"`
	Data      any `json:"data,omitempty"`
}

type vectorReply struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Data    []vectorItem `json:"data"`
	Usage   *usage       `json:"usage"`
}

// Embeddings returns the body of a reply of /v1/embeddings.
func (w *PoolWire) Embeddings(p *pooling.Output) PoolBody {
	return w.vectors(p, func(i int, v any) vectorItem { return vectorItem{Index: i, Object: "embedding", Embedding: v} })
}

// Pooling returns the body of a reply of /pooling.
func (w *PoolWire) Pooling(p *pooling.Output) PoolBody {
	return w.vectors(p, func(i int, v any) vectorItem { return vectorItem{Index: i, Object: "pooling", Data: v} })
}

func (w *PoolWire) vectors(p *pooling.Output, item func(int, any) vectorItem) PoolBody {
	if w.Encoding == "bytes" || w.Encoding == "bytes_only" {
		return w.raw(p)
	}
	out := vectorReply{ID: p.ID, Object: "list", Created: p.Created, Model: p.Model, Data: []vectorItem{}, Usage: usageOf(p.Usage)}
	for i, v := range p.Data {
		out.Data = append(out.Data, item(i, w.value(v)))
	}
	return PoolBody{JSON: encode(out)}
}

// value returns the numbers of one input in their JSON form.
func (w *PoolWire) value(v pooling.Vectors) any {
	switch {
	case w.Encoding == "base64":
		return w.base64(v.Values)
	case v.Rows == 0:
		return v.Values
	}
	rows := make([][]float32, v.Rows)
	for i := range rows {
		rows[i] = v.Row(i)
	}
	return rows
}

// place describes the position and format of an input's numbers in a body of bytes.
type place struct {
	Index      int    `json:"index"`
	EmbedDtype string `json:"embed_dtype"`
	Endianness string `json:"endianness"`
	Start      int    `json:"start"`
	End        int    `json:"end"`
	Shape      []int  `json:"shape"`
}

// raw returns a body of bytes with the numbers of all inputs.
func (w *PoolWire) raw(p *pooling.Output) PoolBody {
	out, order := PoolBody{Bytes: []byte{}}, "little"
	if w.Big {
		order = "big"
	}
	var places []place
	for i, v := range p.Data {
		at := place{Index: i, EmbedDtype: w.Dtype, Endianness: order, Start: len(out.Bytes), Shape: []int{v.Width()}}
		if v.Rows > 0 {
			at.Shape = []int{v.Rows, v.Width()}
		}
		out.Bytes = append(out.Bytes, w.pack(v.Values)...)
		at.End = len(out.Bytes)
		places = append(places, at)
	}
	if w.Encoding == "bytes" {
		out.Metadata = encode(struct {
			ID      string  `json:"id"`
			Created int64   `json:"created"`
			Model   string  `json:"model"`
			Data    []place `json:"data"`
			Usage   *usage  `json:"usage"`
		}{p.ID, p.Created, p.Model, places, usageOf(p.Usage)})
	}
	return out
}

// listReply holds the first fields of all JSON replies.
type listReply struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
}

type classItem struct {
	Index      int       `json:"index"`
	Label      string    `json:"label"`
	Probs      []float32 `json:"probs"`
	NumClasses int       `json:"num_classes"`
}

type classReply struct {
	listReply
	Data  []classItem `json:"data"`
	Usage *usage      `json:"usage"`
}

type scoreItem struct {
	Index  int     `json:"index"`
	Object string  `json:"object"`
	Score  float32 `json:"score"`
}

type scoreReply struct {
	listReply
	Data  []scoreItem `json:"data"`
	Usage *usage      `json:"usage"`
}

func listOf(p *pooling.Output) listReply { return listReply{p.ID, "list", p.Created, p.Model} }

// Classes returns the body of a reply of /classify; labels are the names of the classes.
func Classes(p *pooling.Output, labels []string) []byte {
	out := classReply{listReply: listOf(p), Data: []classItem{}, Usage: usageOf(p.Usage)}
	for i, v := range p.Data {
		best := 0
		for k, x := range v.Values {
			if x > v.Values[best] {
				best = k
			}
		}
		out.Data = append(out.Data, classItem{i, labels[best], v.Values, len(v.Values)})
	}
	return encode(out)
}

// Scores returns the body of a reply of /score.
func Scores(p *pooling.Output) []byte {
	out := scoreReply{listReply: listOf(p), Data: []scoreItem{}, Usage: usageOf(p.Usage)}
	for i, v := range p.Data {
		out.Data = append(out.Data, scoreItem{i, "score", v.Values[0]})
	}
	return encode(out)
}

type rankedDocument struct {
	Text       string    `json:"text"`
	MultiModal *struct{} `json:"multi_modal"`
}

type rankedItem struct {
	Index    int            `json:"index"`
	Document rankedDocument `json:"document"`
	Score    float32        `json:"relevance_score"`
}

type rankUsage struct {
	PromptTokens int `json:"prompt_tokens"`
	TotalTokens  int `json:"total_tokens"`
}

type rankReply struct {
	ID      string       `json:"id"`
	Model   string       `json:"model"`
	Usage   rankUsage    `json:"usage"`
	Results []rankedItem `json:"results"`
}

// Ranking returns the body of a reply of /rerank: documents by falling score, equal
// scores in the order of the request.
func (r *ScoreRequest) Ranking(p *pooling.Output) []byte {
	out := rankReply{p.ID, p.Model, rankUsage{p.Usage.Prompt, p.Usage.Prompt}, []rankedItem{}}
	for i, v := range p.Data {
		out.Results = append(out.Results, rankedItem{i, rankedDocument{Text: r.Ask.Documents[i]}, v.Values[0]})
	}
	sort.SliceStable(out.Results, func(a, b int) bool { return out.Results[a].Score > out.Results[b].Score })
	if r.TopN > 0 && r.TopN < len(out.Results) {
		out.Results = out.Results[:r.TopN]
	}
	return encode(out)
}
