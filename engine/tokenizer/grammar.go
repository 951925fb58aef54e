package tokenizer

// GrammarOptions are the settings of a grammar besides the tokenizer.
type GrammarOptions struct {
	// VocabSize is the number of logits, which a model may pad beyond the tokenizer's vocabulary;
	// 0: the tokenizer's.
	VocabSize int
	// EOS are the ids that end a text; at least one.
	EOS []int32
}

// GrammarEnv is the trie of a tokenizer's token bytes, used by all grammars of a model. Building it
// takes about a second for 128k tokens, so each model has one. It is safe for use by many
// goroutines.
type GrammarEnv struct {
	obj *lease
}

// NewGrammarEnv builds the trie of a tokenizer.
func NewGrammarEnv(t *Tokenizer, o GrammarOptions) (*GrammarEnv, error) {
	if o.VocabSize < 0 || o.VocabSize > maxVocab {
		return nil, failure(KindArgument, 0, "the number of logits is below zero or over 2^24")
	}
	p, err := t.obj.hold()
	if err != nil {
		return nil, err
	}
	defer t.obj.release()
	g, err := grammarsNew(p, o)
	if err != nil {
		return nil, err
	}
	return &GrammarEnv{newLease(g, "the grammar environment", grammarsFree)}, nil
}

const maxVocab = 1 << 24

// Close frees the environment; its matchers remain usable.
func (g *GrammarEnv) Close() { g.obj.close() }

// VocabSize returns the number of ids that a mask covers.
func (g *GrammarEnv) VocabSize() int {
	p, err := g.obj.hold()
	if err != nil {
		return 0
	}
	defer g.obj.release()
	return grammarsVocab(p)
}

// MaskWords returns the length of a mask in words: one bit per id.
func (g *GrammarEnv) MaskWords() int { return (g.VocabSize() + 31) / 32 }

// The kinds of grammar.
const (
	GrammarJSONSchema = "json_schema" // a JSON schema
	GrammarJSONObject = "json_object" // any JSON object; the source is empty
	GrammarRegex      = "regex"       // a regular expression, without look-around
	GrammarLark       = "lark"        // a grammar in llguidance's dialect of Lark
	GrammarChoice     = "choice"      // a JSON list of texts
)

// GrammarSpec is the source of a grammar and its kind.
type GrammarSpec struct {
	Kind   string
	Source string
}

const maxGrammar = 256 << 10 // bytes of a grammar's source

// Compile compiles a grammar. The compiler refuses features that it does not support (in JSON
// schemas not, uniqueItems and regular expressions with look-around, for example) with an *Error of
// KindGrammar.
func (g *GrammarEnv) Compile(s GrammarSpec) (*Matcher, error) {
	switch s.Kind {
	case GrammarJSONSchema, GrammarJSONObject, GrammarRegex, GrammarLark, GrammarChoice:
	default:
		return nil, failure(KindGrammar, 0, "unknown kind of grammar: "+s.Kind)
	}
	if len(s.Source) > maxGrammar {
		return nil, failure(KindGrammar, 0, "the grammar is over 256 KiB")
	}
	p, err := g.obj.hold()
	if err != nil {
		return nil, err
	}
	defer g.obj.release()
	m, err := matcherNew(p, s)
	if err != nil {
		return nil, err
	}
	return newMatcher(m), nil
}
