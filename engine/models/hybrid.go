package models

import (
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// Values of layer_types for attention layers.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
	chunkedAttention = "chunked_attention"
)

// pageAt locates a layer's keys and values, or its state: the KV class, and the index of the layer within it.
type pageAt struct{ class, layer int }

// layerTypes returns layer_types. Without it every period-th layer is full, the others sliding.
func layerTypes(c checkpoint.Config, period int) []string {
	if c.LayerTypes != nil {
		return c.LayerTypes
	}
	return everyNthFull(c.NumLayers, period, slidingAttention)
}

// everyNthFull returns layer types in which every period-th layer has full attention, the others that
// of others.
func everyNthFull(layers, period int, others string) []string {
	out := make([]string, layers)
	for i := range out {
		out[i] = others
		if (i+1)%period == 0 {
			out[i] = fullAttention
		}
	}
	return out
}

// checkLayerTypes refuses unknown layer types, windows without a size, and models without a full
// layer, whose pages store a sequence's token ids.
func checkLayerTypes(types []string, window int) error {
	full := false
	for i, t := range types {
		switch {
		case t == fullAttention:
			full = true
		case t != slidingAttention:
			return &UnsupportedError{fmt.Sprintf("layer_types[%d] %q", i, short(t)), "it is " + fullAttention + " or " + slidingAttention}
		case window < 1:
			return &UnsupportedError{"layer_types with " + slidingAttention, "the config has no sliding_window"}
		}
	}
	if !full {
		return &UnsupportedError{"a model without full attention", "at least one of layer_types must be " + fullAttention}
	}
	return nil
}

// short truncates a string of a config for an error text.
func short(s string) string { return s[:min(len(s), 40)] }

// paging maps the layers of a stage to KV classes. The full class comes first. The rank that
// samples always has it, even if all its layers slide, because it stores the token ids. The window
// class follows if any layer slides or has chunks, then that of recurrent states.
type paging struct {
	at                   []pageAt // by layer of the stage
	full, window, states int      // number of layers in each class
	tokens               bool
}

// source returns the layer whose pages a layer reads; nil: each has its own. A source is of the same
// type, on the same stage and before the layers that read it.
func pagingOf(types []string, source func(layer int) int, s stage, b Build) paging {
	p := paging{tokens: s.last && !b.pools()}
	types = types[s.layer0:][:s.layers]
	sliding := 0
	if p.tokens || slices.Contains(types, fullAttention) {
		sliding = 1
	}
	after := sliding // the class of states
	if slices.Contains(types, slidingAttention) {
		after++
	}
	for i, t := range types {
		if t == mambaLayer {
			p.at = append(p.at, pageAt{after, p.states})
			p.states++
			continue
		}
		if source != nil && source(s.layer0+i) != s.layer0+i {
			p.at = append(p.at, p.at[source(s.layer0+i)-s.layer0])
			continue
		}
		if t != fullAttention {
			p.at = append(p.at, pageAt{sliding, p.window})
			p.window++
			continue
		}
		p.at = append(p.at, pageAt{0, p.full})
		p.full++
	}
	return p
}

// classes completes the two geometries and returns those in use.
func (p paging) classes(full, window backend.KVClass, blockSize int, f kernels.Format) []backend.KVClass {
	full.Name, full.Layers, full.Plane = "full", p.full, p.tokens
	window.Name, window.Layers = "window", p.window
	if window.Chunked {
		window.Name = "chunk"
	}
	var out []backend.KVClass
	if p.full > 0 || p.tokens {
		out = append(out, full)
	}
	if p.window > 0 {
		out = append(out, window)
	}
	for i := range out {
		out[i].BlockSize, out[i].Format = blockSize, f
	}
	return out
}

// addVocabulary adds the embedding and the head if the stage has them. head is the head's tensor,
// "" if it is tied to the embedding.
func (l *loader) addVocabulary(c checkpoint.Config, s stage, table, head string, scale float32) vocabulary {
	v := vocabulary{Build: l.Build, size: c.VocabSize, hidden: c.HiddenSize, scale: scale, embed: backend.NoWeight, head: backend.NoWeight}
	if s.first {
		v.embed = l.embedding(table, c.VocabSize, head == "" && s.last && !l.pools())
	}
	switch {
	case !s.last:
	case l.pools():
		vocabulary := head
		if head == "" {
			vocabulary = table
		}
		v.setPoolingHead(l, vocabulary)
	case head != "":
		v.head = l.head(head, c.VocabSize)
	case s.first:
		v.head = v.embed
	default:
		v.head = l.head(table, c.VocabSize)
	}
	return v
}

// beginResidual starts the residual stream [T, hidden] from embeddings or from the previous stage.
// The stage that samples also stores the step's tokens in its pages. ids are the step's tokens if
// the step verifies proposals, else NoValue.
func beginResidual(r *backend.Recorder, v vocabulary, s stage) (ids, x backend.Value) {
	ids = backend.NoValue
	if s.first || s.last && !v.pools() {
		ids = r.New("ids", kernels.I32, backend.PerToken, 1)
		r.Do(backend.Tokens{Out: ids})
	}
	if s.last && !v.pools() {
		r.Do(backend.StoreTokens{Ids: ids})
	}
	if s.first {
		x = v.lookup(r, ids, "residual")
	} else {
		x = r.New("residual", kernels.F32, backend.PerToken, v.hidden)
		r.Do(backend.Receive{Y: x})
	}
	if ids != backend.NoValue && !(s.last && v.numVerified() > 0) {
		r.Free(ids)
		ids = backend.NoValue
	}
	return ids, x
}

// numVerified returns the number of proposals that a step verifies for each sequence.
func (v vocabulary) numVerified() int { return max(v.Draft, v.Verify) }

// sample consumes logits [L,size] and ids. The step samples its tokens and verifies the proposals
// in ids; then propose records the ops that propose the next tokens.
func (v vocabulary) sample(r *backend.Recorder, logits, ids backend.Value) {
	r.Do(backend.Sample{Logits: logits})
	r.Free(logits)
	if ids == backend.NoValue {
		return
	}
	kept := r.New("kept", kernels.I32, backend.PerSeq, 1)
	r.Do(backend.Verify{Ids: ids, AcceptedRow: kept})
	if v.propose != nil {
		v.propose(r, ids, kept)
	}
	r.Free(ids, kept)
}

// checkRanks refuses a number of tensor parallel ranks that cannot share the model's heads or
// vocabulary.
func (l *loader) checkRanks(c checkpoint.Config, kvHeads ...int) error {
	err := l.checkEven(c.NumHeads, "attention heads")
	for _, n := range kvHeads {
		if err == nil {
			err = l.checkShared(n, "key/value heads")
		}
	}
	if err == nil {
		err = l.checkEven(c.VocabSize, "tokens (vocab_size)")
	}
	return err
}

// checkExperts refuses impossible numbers of experts, and numbers so large that the config must be
// wrong.
func checkExperts(c checkpoint.Config) error {
	const most = 1 << 16
	switch {
	case c.NumExperts < 1:
		return &UnsupportedError{"a mixture without experts", "the config's number of experts is missing or 0"}
	case c.ExpertsPerToken < 1 || c.ExpertsPerToken > c.NumExperts:
		return &UnsupportedError{fmt.Sprintf("%d experts a token", c.ExpertsPerToken), fmt.Sprintf("there are %d", c.NumExperts)}
	case c.NumExperts*c.NumLayers > most:
		return &UnsupportedError{fmt.Sprintf("%d layers of %d experts", c.NumLayers, c.NumExperts), fmt.Sprintf("at most %d experts in all", most)}
	}
	return nil
}
