package checkpoint

import (
	"slices"
)

// maxTemplate bounds one chat template.
const maxTemplate = 4 << 20

// Token is one special token; ID is -1 where there is none.
type Token struct {
	ID   int
	Text string
}

// SpecialTokens are the tokens with a role.
type SpecialTokens struct {
	BOS, EOS, PAD, UNK Token
	AddBOS             bool // encoding a prompt begins with BOS
}

// GenerationConfig is generation_config.json; nil means that it does not say.
type GenerationConfig struct {
	Temperature       *float64
	TopK              *int
	TopP              *float64
	MinP              *float64
	RepetitionPenalty *float64
	MaxNewTokens      *int
	DoSample          *bool
	EosTokenIDs       []int
}

// text is everything of a checkpoint that is about text.
type text struct {
	special    SpecialTokens
	templates  map[string]string
	generation GenerationConfig
	eos        []int
	tokenizer  func() ([]byte, error)
}

// ChatTemplate returns the default chat template (Jinja), "" without one.
func (c *Checkpoint) ChatTemplate() string { return c.text.templates["default"] }

// ChatTemplates returns all named templates, such as "default" and "tool_use".
func (c *Checkpoint) ChatTemplates() map[string]string { return c.text.templates }

// SpecialTokens returns the tokens with a role.
func (c *Checkpoint) SpecialTokens() SpecialTokens { return c.text.special }

// EOSTokenIDs returns every id that ends a generation: those of the generation
// config, of the config, and of the tokenizer, each once.
func (c *Checkpoint) EOSTokenIDs() []int { return c.text.eos }

// GenerationConfig returns the sampling defaults that come with the model.
func (c *Checkpoint) GenerationConfig() GenerationConfig { return c.text.generation }

// TokenizerJSON returns a tokenizer.json: the file of a directory, or one built
// from GGUF metadata.
func (c *Checkpoint) TokenizerJSON() ([]byte, error) {
	var b []byte
	err := guarded(c.path, func() (err error) {
		b, err = c.text.tokenizer()
		return err
	})
	return b, err
}

// union joins lists of ids in order, each id once.
func union(lists ...[]int) []int {
	var out []int
	for _, l := range lists {
		for _, id := range l {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}
