package checkpoint

import (
	"slices"
)

// maxTemplate is the maximum size of a chat template in bytes.
const maxTemplate = 4 << 20

// Token is a special token; ID is -1 if there is none.
type Token struct {
	ID   int
	Text string
}

// SpecialTokens holds the special tokens by role.
type SpecialTokens struct {
	BOS, EOS, PAD, UNK Token
	AddBOS             bool // encoding adds BOS before a prompt
}

// GenerationConfig is generation_config.json; nil fields are not set there.
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

// text holds the text side of a checkpoint: templates, special tokens, generation config.
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

// SpecialTokens returns the special tokens by role.
func (c *Checkpoint) SpecialTokens() SpecialTokens { return c.text.special }

// EOSTokenIDs returns every id that ends a generation: those of the generation
// config, of the config, and of the tokenizer, each once.
func (c *Checkpoint) EOSTokenIDs() []int { return c.text.eos }

// GenerationConfig returns the model's default sampling parameters.
func (c *Checkpoint) GenerationConfig() GenerationConfig { return c.text.generation }

// TokenizerJSON returns the tokenizer.json of a directory, or one built from GGUF metadata.
func (c *Checkpoint) TokenizerJSON() ([]byte, error) {
	var b []byte
	err := catchFault(c.path, func() (err error) {
		b, err = c.text.tokenizer()
		return err
	})
	return b, err
}

// union concatenates lists of ids and removes duplicates.
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
