package engine

import (
	"encoding/json"
	"fmt"
	"strings"

	"vapp.dev/engine/models"
)

// PoolingOptions are the pooling fields of a profile. The zero value and "auto" leave the
// decision to the checkpoint.
type PoolingOptions struct {
	Runner     string // auto, generate, pooling
	Convert    string // auto, none, embed, classify
	Type       string // LAST, MEAN, CLS, ALL
	Normalize  *bool
	Activation string   // softmax, sigmoid, identity
	Tokens     []string // classifierFromToken
}

// Pooling describes the output of a pooling model.
type Pooling struct {
	Task       string // embed, classify
	Type       string // LAST, MEAN, CLS, ALL: which tokens are pooled
	Normalize  bool   // embeddings are scaled to length 1
	Activation string // of a classifier's logits: softmax, sigmoid, identity
	Labels     []string
	Tokens     []string // whose rows of the head form the classifier; nil: the checkpoint has its own
	// Matryoshka allows shortened embeddings, to one of Dimensions if that is not nil.
	Matryoshka bool
	Dimensions []int
	Why        string // source of Type
}

// poolConfig holds the fields of config.json about pooling.
type poolConfig struct {
	ProblemType   string   `json:"problem_type"`
	Matryoshka    bool     `json:"is_matryoshka"`
	Dimensions    []int    `json:"matryoshka_dimensions"`
	FromToken     []string `json:"classifier_from_token"`
	CrossEncoder  string   `json:"sbert_ce_default_activation_function"`
	SentenceTrans *struct {
		Activation string `json:"activation_fn"`
	} `json:"sentence_transformers"`
}

// resolvePooling decides whether the model pools, in vLLM's order: the profile, then the
// checkpoint's Sentence Transformers files, then its architecture. It sets Pooling and
// Build.Pooling.
func (m *Model) resolvePooling() error {
	w, stored := m.Source.Pooling, models.HeadOf(m.Config)
	sentence, err := m.Checkpoint.PoolingConfig()
	if err != nil && w.Runner != "generate" {
		return err
	}
	asks := w.Runner == "pooling" || w.Convert == "embed" || w.Convert == "classify" || len(w.Tokens) > 0
	if w.Runner == "generate" || !asks && sentence == nil && stored == models.Logits {
		if asks {
			return fmt.Errorf("model %s: model.convert and pooling.classifierFromToken are for models that pool, and model.runner is generate; leave it or them out", m.Source.Name)
		}
		return nil
	}
	c := poolConfig{}
	if err := json.Unmarshal(m.Config.Raw, &c); err != nil && m.Config.Dialect != "gguf" {
		return fmt.Errorf("model %s: config.json: what it says of pooling cannot be read: %w", m.Source.Name, err)
	}
	q := &Pooling{Task: "embed", Type: "LAST", Normalize: true, Matryoshka: c.Matryoshka, Dimensions: c.Dimensions, Tokens: w.Tokens, Why: "by default"}
	if w.Convert == "classify" || w.Convert != "embed" && (stored == models.Score || len(w.Tokens) > 0) {
		q.Task = "classify"
	}
	switch {
	case w.Type != "":
		q.Type, q.Why = w.Type, "pooling.type"
	case sentence != nil:
		q.Type, q.Why = sentence.Pooling, sentence.File
	}
	if sentence != nil {
		q.Normalize = sentence.Normalize
	}
	if w.Normalize != nil {
		q.Normalize = *w.Normalize
	}
	m.Pooling, m.Source.Build.Pooling = q, models.Pooling{Head: models.Hidden}
	if q.Task == "classify" {
		return m.classifier(c)
	}
	if len(w.Tokens) > 0 {
		return fmt.Errorf("model %s: pooling.classifierFromToken makes a classifier, and model.convert is embed; leave one of them out", m.Source.Name)
	}
	return nil
}

// classifier sets the head, the labels and the activation of a classifier.
func (m *Model) classifier(c poolConfig) (err error) {
	q, w := m.Pooling, m.Source.Pooling
	q.Normalize = false
	if q.Tokens == nil && models.HeadOf(m.Config) == models.Logits {
		q.Tokens = c.FromToken
	}
	if len(q.Tokens) > 0 {
		q.Labels = []string{q.Tokens[len(q.Tokens)-1]}
		if m.Source.Build.Pooling, err = m.classifierTokens(q.Tokens); err != nil {
			return err
		}
	} else {
		m.Source.Build.Pooling.Head = models.Score
		if q.Labels, err = models.Labels(m.Config); err != nil {
			return err
		}
	}
	q.Activation = "softmax"
	if len(q.Labels) == 1 {
		q.Activation = "sigmoid"
	}
	word := c.CrossEncoder
	if c.SentenceTrans != nil && c.SentenceTrans.Activation != "" {
		word = c.SentenceTrans.Activation
	}
	switch {
	case w.Activation != "":
		q.Activation = w.Activation
	case strings.HasSuffix(word, ".Sigmoid"), c.ProblemType == "multi_label_classification":
		q.Activation = "sigmoid"
	case strings.HasSuffix(word, ".Identity"), c.ProblemType == "regression":
		q.Activation = "identity"
	case word != "":
		return fmt.Errorf("model %s: config.json names the activation %.80q, which is not read; set pooling.activation", m.Source.Name, word)
	}
	return nil
}

// classifierTokens returns the head made of the tokens of classifierFromToken. Without a
// tokenizer there are no weights either, and the plan does not depend on the ids.
func (m *Model) classifierTokens(words []string) (models.Pooling, error) {
	p := models.Pooling{Head: models.TokenClassifier, Count: len(words)}
	if len(words) > models.MaxClassifierTokens {
		return p, fmt.Errorf("model %s: a classifier of %d tokens is not supported: 1 or %d are", m.Source.Name, len(words), models.MaxClassifierTokens)
	}
	text, err := m.Checkpoint.TokenizerJSON()
	known := err == nil && m.Where == FromCheckpoint
	ids := map[string]int{}
	if known {
		ids = vocabularyOf(text)
	}
	for i, word := range words {
		id, ok := ids[word]
		if !ok && known {
			return p, fmt.Errorf("model %s: %q of pooling.classifierFromToken is no token of its vocabulary", m.Source.Name, word)
		}
		if !ok {
			id = i
		}
		p.Tokens[i] = int32(id)
	}
	return p, nil
}
