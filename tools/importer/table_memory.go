package importer

const otherKV = no + "vapp stores keys and values as auto, bfloat16, float16, float32 or fp8"

// kvDtypes maps vLLM's dtypes of the KV cache to vapp's.
var kvDtypes = map[string]string{
	"auto": "auto", "bfloat16": "bfloat16", "float16": "float16", "half": "float16", "float32": "float32",
	"fp8": "fp8", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2",
	"fp8_inc": otherKV, "fp8_ds_mla": otherKV, "nvfp4": otherKV, "int8": otherKV, "fp8_per_token_head": otherKV, "int8_per_token_head": otherKV,
	"turboquant_k8v4": otherKV, "turboquant_4bit_nc": otherKV, "turboquant_k3v4_nc": otherKV, "turboquant_3bit_nc": otherKV,
}
