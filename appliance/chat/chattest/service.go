package chattest

import (
	"context"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/tokenizer"
)

// Now is the time of every service.
var Now = time.Unix(1700000000, 0)

// ModelLen of every service, in tokens.
const ModelLen = 200

// Service returns the service of a model.
func Service(m *Model) *chat.Service { return chat.New(Config(m)) }

// Config returns the configuration of Service.
func Config(m *Model) chat.Config {
	c := chat.Config{
		Engine: m, Text: m, Vocabulary: m,
		ModelLen: ModelLen, ModelRoot: "test/root",
		Special: checkpoint.SpecialTokens{
			BOS: checkpoint.Token{ID: BOS, Text: specials[BOS]}, EOS: checkpoint.Token{ID: EOS, Text: specials[EOS]},
			PAD: checkpoint.Token{ID: -1}, UNK: checkpoint.Token{ID: -1},
		},
		EOS:     []int{Turn, EOS},
		Pooling: m.Pooling,
		Limits:  sample.Limits{Vocab: Vocab, Logprobs: 20, Bias: 300},
		Sandbox: func(_ context.Context, source string) (chat.Template, error) {
			return Template{Prefix: source}, nil
		},
		Grammars: grammars(),
		Now:      func() time.Time { return Now },
	}
	if m.Adapters != nil {
		c.Adapters = m.Adapters
	}
	return c
}

// grammars returns a compiler for a vocabulary of bytes. The model ignores the grammars.
func grammars() chat.Grammars {
	b, err := checkpoint.SyntheticTokenizer(checkpoint.Config{VocabSize: Vocab})
	if err != nil {
		panic(err)
	}
	t, err := tokenizer.Load(b, tokenizer.LoadOptions{})
	if err != nil {
		panic(err)
	}
	return grammar.NewCompiler(t, Vocab, []int32{EOS})
}

// Settings returns usual settings; the model's names are test and also.
func Settings() chat.Settings {
	return chat.Settings{
		Models: []string{"test", "also"}, MaxChoices: 128, MaxLogprobs: 20, GenerationConfig: true, Template: Template{},
	}
}
