//go:build !race

package engine_test

// twinFamilies are the small checkpoints of the families.
var twinFamilies = []string{"tiny-llama3-tied", "tiny-qwen2", "tiny-qwen3", "tiny-gpt-oss", "tiny-gemma4", "tiny-gemma4-moe", "tiny-qwen35"}

// recipeFamilies are the small checkpoints of further recipes. They share their ops with
// twinFamilies, and run the ways that are meant for every backend on the best one.
var recipeFamilies = []string{
	"tiny-mistral", "tiny-ministral3", "tiny-gemma2", "tiny-gemma3", "tiny-phi3", "tiny-granite", "tiny-smollm3", "tiny-glm4", "tiny-cohere", "tiny-cohere2", "tiny-ernie", "tiny-internlm3",
	"tiny-olmo2", "tiny-olmo3", "tiny-hunyuan", "tiny-awq", "tiny-gptq", "tiny-w4a16", "tiny-nvfp4",
	"tiny-mixtral", "tiny-qwen2-moe", "tiny-glm4-moe", "tiny-olmoe", "tiny-qwen35-moe",
}

// racing reports whether the race detector is on, under which arithmetic is slow.
const racing = false
