package importer

// dtypes maps vLLM's dtypes to vapp's.
var dtypes = map[string]string{
	"auto": "auto", "half": "float16", "float16": "float16", "bfloat16": "bfloat16", "float": "float32", "float32": "float32",
}

const otherFormat = no + "vapp reads safetensors and GGUF, and detects which"

// loadFormats maps vLLM's load formats to vapp's.
var loadFormats = map[string]string{
	"auto": "auto", "safetensors": "safetensors", "gguf": "gguf", "dummy": "dummy",
	"hf": otherFormat, "pt": otherFormat, "npcache": otherFormat, "tensorizer": otherFormat, "sharded_state": otherFormat,
	"bitsandbytes": otherFormat, "mistral": otherFormat, "runai_streamer": otherFormat, "runai_streamer_sharded": otherFormat,
	"fastsafetensors": otherFormat, "instanttensor": otherFormat, "modelexpress": otherFormat,
}
