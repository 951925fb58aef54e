package models

import (
	"errors"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

// TestQwen35Tiles checks the columns of output projections in GGUF files: the second group's first head
// comes before the first group's second.
func TestQwen35Tiles(t *testing.T) {
	q := qwen35Config{keyHeads: 2, valueHeads: 6, valueDim: 2}
	if got, want := q.tiles(), []float32{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}; !slices.Equal(got, want) {
		t.Errorf("the inputs are taken in the order %v, want %v", got, want)
	}
}

// TestQwen35GGUFConfig checks what differs in GGUF files: norms have 1 added, and value heads that share
// a key head are in tiles, which ranks cannot divide, except in Qwen3-Next.
func TestQwen35GGUFConfig(t *testing.T) {
	for _, x := range []struct {
		dialect, values, architecture string
		offset                        float32
		tiled                         bool
	}{{"gguf", "6", qwen35Text, 0, true}, {"gguf", "2", qwen35Text, 0, false}, {"huggingface", "6", qwen35Text, 1, false}, {"gguf", "6", qwen3Next, 0, false}} {
		c, err := checkpoint.ParseConfig("config.json", []byte(`{"architectures": ["`+x.architecture+`"], "model_type": "qwen3_5_text", "hidden_size": 64, "num_experts": 4, "num_experts_per_tok": 2,
			"moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
			"intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "vocab_size": 64, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
			"hidden_act": "silu", "linear_num_key_heads": 2, "linear_num_value_heads": `+x.values+`}`))
		if err != nil {
			t.Fatal(err)
		}
		c.Dialect = x.dialect
		q, err := readQwen35(c)
		if err != nil || q.normOffset != x.offset || q.tiled != x.tiled {
			t.Errorf("%+v: offset %v, tiled %v, %v", x, q.normOffset, q.tiled, err)
		}
		var refused *UnsupportedError
		if err := q.checkBuild(Build{Shard: backend.Shard{World: 2}}); errors.As(err, &refused) != x.tiled {
			t.Errorf("%+v at tensor parallel size 2: %v", x, err)
		}
	}
}
