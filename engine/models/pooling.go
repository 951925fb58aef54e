package models

import (
	"fmt"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// Head is how a step turns the last norm's rows into its output.
type Head uint8

// The heads.
const (
	// Logits are computed over the vocabulary, and tokens are sampled from them: the model
	// generates.
	Logits Head = iota
	// Hidden outputs the rows unchanged: the model embeds.
	Hidden
	// Score applies the checkpoint's classifier, score.weight.
	Score
	// TokenClassifier outputs the logits of a few tokens, like vLLM's classifier_from_token: a
	// model that answers "yes" or "no" ranks documents.
	TokenClassifier
)

// MaxClassifierTokens is the maximum number of tokens for TokenClassifier.
const MaxClassifierTokens = 2

// Pooling configures a model that does not generate. The zero value generates.
type Pooling struct {
	Head   Head
	Tokens [MaxClassifierTokens]int32 // token ids for TokenClassifier
	Count  int                        // number of Tokens
}

// pools reports whether a step returns rows to the host instead of tokens.
func (b Build) pools() bool { return b.Pooling.Head != Logits }

// scoreTensor is the classifier matrix [labels, hidden] of transformers' ForSequenceClassification.
const scoreTensor = "score.weight"

// maxLabels is the maximum number of labels of a classifier.
const maxLabels = 1 << 16

// Suffixes of transformers' architecture names, one for each kind of head.
const (
	causalSuffix      = "ForCausalLM"
	conditionalSuffix = "ForConditionalGeneration"
	classifierSuffix  = "ForSequenceClassification"
	bareSuffix        = "Model"
)

// generativeConfig returns c with the architecture name that the family table uses, and the head
// that c's own architecture has. Qwen3Model is Qwen3ForCausalLM without a head;
// Qwen3ForSequenceClassification has a classifier instead.
func generativeConfig(c checkpoint.Config) (checkpoint.Config, Head) {
	stem, head := c.Architecture, Logits
	if s, ok := strings.CutSuffix(stem, classifierSuffix); ok {
		stem, head = s, Score
	} else if s, ok := strings.CutSuffix(stem, bareSuffix); ok {
		stem, head = s, Hidden
	}
	if head == Logits {
		return c, Logits
	}
	suffixes := []string{causalSuffix, conditionalSuffix}
	if s, err := c.Section("text_config"); err == nil && s != nil {
		suffixes = []string{conditionalSuffix, causalSuffix}
	}
	for _, suffix := range suffixes {
		for _, f := range families {
			if f.architecture == stem+suffix {
				c.Architecture = f.architecture
				return c, head
			}
		}
	}
	return c, Logits // findFamily refuses it under its own name
}

// HeadOf returns the head that a checkpoint's architecture implies.
func HeadOf(c checkpoint.Config) Head {
	_, h := generativeConfig(c)
	return h
}

// Labels returns the class names of a Score head, in the order of its rows, from id2label or
// num_labels. transformers' default is two labels.
func Labels(c checkpoint.Config) ([]string, error) {
	s, err := c.Section("")
	if err != nil {
		return nil, err
	}
	names := s.Section("id2label")
	n := s.CountOr("num_labels", 1, maxLabels, 2)
	if names != nil {
		n = names.Len()
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if n < 1 || n > maxLabels {
		return nil, &UnsupportedError{fmt.Sprintf("a classifier of %d classes", n), fmt.Sprintf("1 to %d are", maxLabels)}
	}
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("LABEL_%d", i)
		if names != nil {
			out[i] = names.TextOr(fmt.Sprint(i), out[i])
		}
	}
	if names != nil {
		err = names.Err()
	}
	return out, err
}

// withHead returns the tensors of a checkpoint that ends with head h.
func withHead(c checkpoint.Config, list []checkpoint.TensorInfo, h Head) ([]checkpoint.TensorInfo, error) {
	if h == Logits || h == TokenClassifier {
		return list, nil
	}
	out := make([]checkpoint.TensorInfo, 0, len(list)+1)
	for _, t := range list {
		if t.Name != "lm_head.weight" {
			out = append(out, t)
		}
	}
	if h == Score {
		labels, err := Labels(c)
		if err != nil {
			return nil, err
		}
		l := &tensorList{list: out, dtype: Dtype(c)}
		l.add(scoreTensor, len(labels), c.HiddenSize)
		out = l.list
	}
	return out, nil
}

// poolingHead adds the matrix that multiplies the last norm's rows; NoWeight if there is none.
// vocabulary is the tensor of the head over the vocabulary. Every rank holds the whole matrix.
func (l *loader) poolingHead(vocabulary string) backend.WeightID {
	switch l.Pooling.Head {
	case Score:
		return l.matrix(matrix{name: "score", group: "head"}, all(scoreTensor))
	case TokenClassifier:
		var rows []piece
		for _, id := range l.Pooling.Tokens[:l.Pooling.Count] {
			rows = append(rows, piece{tensor: vocabulary, row0: int(id), rows: 1})
		}
		return l.matrix(matrix{name: "score", group: "head"}, rows...)
	}
	return backend.NoWeight
}

// setPoolingHead sets the pooling head in place of the vocabulary head.
func (v *vocabulary) setPoolingHead(l *loader, vocabulary string) {
	if v.head = l.poolingHead(vocabulary); v.head != backend.NoWeight {
		v.classes = l.specs[v.head].Rows
	}
}

// checkPooling refuses settings that a pooling model cannot have.
func (b Build) checkPooling(c checkpoint.Config) error {
	if !b.pools() {
		return nil
	}
	what := "a model that pools"
	switch {
	case b.Draft > 0 || b.Verify > 0:
		return &UnsupportedError{"proposed tokens of " + what, "it samples no tokens"}
	case b.Pooling.Head > TokenClassifier:
		return &UnsupportedError{fmt.Sprintf("head %d", b.Pooling.Head), "there are four"}
	case b.Pooling.Head == TokenClassifier && (b.Pooling.Count < 1 || b.Pooling.Count > MaxClassifierTokens):
		return &UnsupportedError{fmt.Sprintf("a classifier of %d tokens", b.Pooling.Count), fmt.Sprintf("1 to %d are", MaxClassifierTokens)}
	}
	for _, id := range b.Pooling.Tokens[:b.Pooling.Count] {
		if id < 0 || int(id) >= c.VocabSize {
			return &UnsupportedError{fmt.Sprintf("a classifier of token %d", id), fmt.Sprintf("the vocabulary has %d", c.VocabSize)}
		}
	}
	return nil
}

// finish consumes the last norm's rows [L,hidden] and the step's ids. A generating model samples
// tokens from the logits, soft-capped at softcap unless it is 0. A pooling model returns the rows
// to the host, multiplied by its classifier if it has one.
func (v vocabulary) finish(r *backend.Recorder, last, ids backend.Value, softcap float64) {
	if v.pools() {
		v.outputRows(r, last)
		free(r, ids)
		return
	}
	logits := v.logits(r, last)
	r.Free(last)
	if softcap > 0 {
		r.Do(backend.Softcap{X: logits, Cap: float32(softcap)})
	}
	v.sample(r, logits, ids)
}

func (v vocabulary) outputRows(r *backend.Recorder, x backend.Value) {
	if v.head != backend.NoWeight {
		in := r.Info(x)
		y := r.New("score", kernels.F32, in.Rows, v.classes)
		r.Do(backend.Linear{X: x, W: v.head, Bias: backend.NoWeight, Y: y})
		r.Free(x)
		x = y
	}
	r.Do(backend.OutputRows{X: x})
	r.Free(x)
}
