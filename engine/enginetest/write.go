package enginetest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"vapp.dev/engine/checkpoint"
)

// ChatTemplate is the chat template of toys.
const ChatTemplate = `{{ bos_token }}{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}`

// WriteLlama writes a complete Hugging Face directory to dir, which it creates: config.json,
// generation_config.json, tokenizer.json (one token for each byte, with BOS <|bos|> and EOS
// <|eos|> as the last two ids), tokenizer_config.json with ChatTemplate, and the weights in
// o.Shards files.
func WriteLlama(dir string, o Llama) error {
	o = o.whole()
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	weights, err := o.Weights()
	if err != nil {
		return err
	}
	tokenizer, err := checkpoint.SyntheticTokenizer(cfg)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"config.json":    o.ConfigJSON(),
		"tokenizer.json": tokenizer,
		"generation_config.json": mustJSON(map[string]any{
			"bos_token_id": o.Vocab - 2, "eos_token_id": []int{o.Vocab - 1}, "do_sample": true, "temperature": 0.6, "top_p": 0.9,
		}),
		"tokenizer_config.json": mustJSON(map[string]any{
			"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|eos|>",
			"model_max_length": o.MaxPos, "chat_template": ChatTemplate,
		}),
	}
	if err := o.shard(files, weights); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// shard adds the weight files, and an index if there are several.
func (o Llama) shard(files map[string][]byte, weights map[string][]float32) error {
	layout, data := o.Layout(), map[string][]byte{}
	for _, t := range layout {
		data[t.Name] = encode(o.DType, weights[t.Name])
	}
	parts, err := shardFiles(layout, data, o.Shards)
	maps.Copy(files, parts)
	return err
}

// shardFiles returns that many files of tensors by name, each with as many tensors as the others, and
// an index if there are several.
func shardFiles(layout []checkpoint.TensorInfo, data map[string][]byte, shards int) (map[string][]byte, error) {
	files, where, total := map[string][]byte{}, map[string]string{}, 0
	for i := range shards {
		name := "model.safetensors"
		if shards > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		}
		part := layout[i*len(layout)/shards : (i+1)*len(layout)/shards]
		b, err := safetensors(part, data)
		if err != nil {
			return nil, err
		}
		files[name] = b
		for _, t := range part {
			where[t.Name] = name
			total += len(data[t.Name])
		}
	}
	if shards > 1 {
		files["model.safetensors.index.json"] = mustJSON(map[string]any{
			"metadata": map[string]int{"total_size": total}, "weight_map": where,
		})
	}
	return files, nil
}
