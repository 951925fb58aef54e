package models

import (
	"encoding/json"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// int8Config returns a quantization_config as llm-compressor writes it, with additional keys for
// weights and with inputs.
func int8Config(format, weights, inputs string) json.RawMessage {
	return json.RawMessage(`{"quant_method":"compressed-tensors","format":"` + format + `","quantization_status":"compressed","kv_cache_scheme":null,"ignore":["lm_head"],
		"config_groups":{"group_0":{"targets":["Linear"],"output_activations":null,"input_activations":` + inputs + `,
		"weights":{"block_structure":null,"dynamic":false,"num_bits":8,"observer":"minmax","observer_kwargs":{},"type":"int",` + weights + `}}}}`)
}

const (
	int8Channel = `"strategy":"channel","group_size":null,"symmetric":true,"actorder":null`
	int8Groups  = `"strategy":"group","group_size":128,"symmetric":true,"actorder":null`
	int8Token   = `{"actorder":null,"block_structure":null,"dynamic":true,"group_size":null,"num_bits":8,"observer":null,"observer_kwargs":{},"strategy":"token","symmetric":true,"type":"int"}`
)

var int8Configs = []struct {
	name   string
	config json.RawMessage
	want   quant
}{
	{"W8A8", int8Config("int-quantized", int8Channel, int8Token), quant{scaling: backend.PerChannel, round: true}},
	{"W8A8 per tensor", int8Config("int-quantized", `"strategy":"tensor"`, int8Token), quant{scaling: backend.PerTensor, round: true}},
	{"W8A16, packed", int8Config("pack-quantized", int8Channel, "null"), quant{scaling: backend.PerChannel, packed: true}},
	{"W8A16 in groups, packed", int8Config("pack-quantized", int8Groups, "null"), quant{scaling: backend.PerGroup, group: 128, packed: true}},
	{"W8A16, plain", int8Config("naive-quantized", strings.Replace(int8Groups, "128", "32", 1), "null"), quant{scaling: backend.PerGroup, group: 32}},
	{"the group's own format", json.RawMessage(strings.Replace(strings.Replace(string(int8Config("mixed-precision", int8Channel, "null")), `{"targets"`, `{"format":"pack-quantized","targets"`, 1), "\n", "", -1)),
		quant{scaling: backend.PerChannel, packed: true}},
}

func TestInt8Configs(t *testing.T) {
	for _, c := range int8Configs {
		q, err := quantOf(checkpoint.Config{QuantizationConfig: c.config})
		got := quant{scaling: q.scaling, group: q.group, packed: q.packed, round: q.round}
		if err != nil || q.format != kernels.I8 || got.scaling != c.want.scaling || got.group != c.want.group || got.packed != c.want.packed || got.round != c.want.round {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		if q.converts("lm_head") || !q.converts("model.layers.0.mlp.up_proj") {
			t.Errorf("%s: what is ignored is not", c.name)
		}
	}
}

// TestInt8Refusals checks that unsupported variants of int8 are refused, naming the key.
func TestInt8Refusals(t *testing.T) {
	changed := func(of, with string) string { return strings.Replace(int8Token, of, with, 1) }
	weights := func(of, with string) string { return strings.Replace(int8Groups, of, with, 1) }
	for _, c := range []struct {
		format, weights, inputs, want string
	}{
		{"int-quantized", weights(`"symmetric":true`, `"symmetric":false`), "null", "symmetric false"},
		{"pack-quantized", weights(`"actorder":null`, `"actorder":"group"`), "null", `actorder "group"`},
		{"pack-quantized", weights(`"actorder":null`, `"actorder":"weight"`), "null", `actorder "weight"`},
		{"pack-quantized", weights("128", "48"), "null", "group_size 48"},
		{"pack-quantized", weights("128", "0"), "null", "group_size 0"},
		{"pack-quantized", weights("128", "-1"), "null", "group_size -1"},
		{"pack-quantized", weights("128", "null"), "null", "group_size null"},
		{"pack-quantized", weights("128", "4294967296"), "null", "group_size 4294967296"},
		{"pack-quantized", weights(`"group"`, `"block"`), "null", `strategy "block"`},
		{"marlin-24", int8Channel, "null", `format "marlin-24"`},
		{"int-quantized", int8Channel, changed(`"dynamic":true`, `"dynamic":false`), "dynamic false"},
		{"int-quantized", int8Channel, changed(`"dynamic":true`, `"dynamic":"local"`), `dynamic "local"`},
		{"int-quantized", int8Channel, changed(`"symmetric":true`, `"symmetric":false`), "input_activations of symmetric false"},
		{"int-quantized", int8Channel, changed(`"token"`, `"tensor"`), `strategy "tensor"`},
		{"int-quantized", int8Channel, changed(`"num_bits":8`, `"num_bits":4`), `4-bit "int"`},
		{"int-quantized", int8Channel, changed(`"type":"int"`, `"type":"float"`), `8-bit "float"`},
		{"int-quantized", int8Groups, int8Token, "groups"},
	} {
		checkQuantRefused(t, int8Config(c.format, c.weights, c.inputs), c.want)
	}
	for _, more := range [][2]string{{`"output_activations":null`, `"output_activations":` + int8Token}, {`"dynamic":false`, `"dynamic":true`}} {
		config := strings.Replace(string(int8Config("int-quantized", int8Channel, "null")), more[0], more[1], 1)
		if _, err := quantOf(checkpoint.Config{QuantizationConfig: json.RawMessage(config)}); err == nil {
			t.Errorf("%s is read", more[1])
		}
	}
}

// TestDynamicFP8: which checkpoints say that activations are rounded to 8-bit floats with scales of their
// own numbers.
func TestDynamicFP8(t *testing.T) {
	group := func(weights, inputs string) string {
		return `{"quant_method":"compressed-tensors","config_groups":{"group_0":{"targets":["Linear"],"weights":` + weights + `,"input_activations":` + inputs + `}}}`
	}
	const float, integer = `{"num_bits":8,"type":"float","strategy":"channel"}`, `{"num_bits":8,"type":"int","strategy":"channel"}`
	for config, want := range map[string]bool{
		"": false, "null": false, `"fp8"`: false,
		`{"quant_method":"fp8","activation_scheme":"dynamic"}`:                               true,
		`{"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,128]}`: true,
		`{"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[64,64]}`:   false, // refused
		`{"quant_method":"fp8","activation_scheme":"static"}`:                                false,
		`{"quant_method":"fp8"}`: false,
		`{"quant_method":"fbgemm_fp8","activation_scheme":"dynamic"}`:                                     false,
		group(float, `{"num_bits":8,"type":"float","strategy":"token","dynamic":true}`):                   true,
		group(float, `{"num_bits":8,"type":"float","strategy":"tensor","dynamic":false}`):                 false,
		group(float, `{"num_bits":8,"type":"int","strategy":"token","dynamic":true}`):                     false,
		group(float, `{"num_bits":8,"type":"float","strategy":"token","dynamic":true,"symmetric":false}`): false,
		group(float, `null`): false,
		group(integer, `{"num_bits":8,"type":"int","strategy":"token","dynamic":true}`): false,
	} {
		if got := DynamicFP8(checkpoint.Config{QuantizationConfig: json.RawMessage(config)}); got != want {
			t.Errorf("%s: %v", config, got)
		}
	}
}
