package checkpoint

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// deltaToy returns a file of qwen35: two key heads, four value heads, both two wide, in tiles.
func deltaToy(arch string) *toy {
	m := familyToy(arch, map[string][]uint64{
		"attn_qkv.weight": {16, 16}, "attn_gate.weight": {16, 8}, "ssm_alpha.weight": {16, 4}, "ssm_conv1d.weight": {4, 16},
		"ssm_a": {4}, "ssm_dt.bias": {4}, "ssm_norm.weight": {2}, "ssm_out.weight": {8, 16}, "post_attention_norm.weight": {16},
	})
	for key, v := range map[string]uint32{"time_step_rank": 4, "inner_size": 8, "group_count": 2, "conv_kernel": 4, "state_size": 2} {
		m.set(arch+".ssm."+key, v)
	}
	return m.set(arch+".rope.dimension_count", uint32(4)).set(arch+".full_attention_interval", uint32(2))
}

// TestDeltaNetGGUF checks the tensors of delta nets: value heads are stored in tiles, and −exp(A_log)
// in the place of A_log.
func TestDeltaNetGGUF(t *testing.T) {
	b := deltaToy("qwen35").bytes()
	c, err := Open(writeTemp(t, "m.gguf", b))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Heads of the file: first of group 0, first of group 1, second of group 0, second of group 1.
	heads := []int64{0, 2, 1, 3}
	pairs := func(first int64) (rows []int64) {
		for r := range first {
			rows = append(rows, r)
		}
		for _, h := range heads {
			rows = append(rows, first+2*h, first+2*h+1)
		}
		return rows
	}
	parts := map[string][]int64{
		"in_proj_qkv.weight": pairs(8), "conv1d.weight": pairs(8), "in_proj_z.weight": pairs(0), "in_proj_a.weight": heads,
		"A_log": heads, "dt_bias": heads, "out_proj.weight": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	}
	for name, rows := range parts { // the numbers of a row are its number in the file
		x, ok := c.Tensor("model.layers.1.linear_attn." + name)
		if !ok {
			t.Fatalf("%s is missing", name)
		}
		for at := range x.Bytes / 4 {
			v := float64(at * int64(len(rows)) / (x.Bytes / 4))
			if name == "A_log" {
				v = -math.Exp(v)
			}
			binary.LittleEndian.PutUint32(b[x.Offset+4*at:], math.Float32bits(float32(v)))
		}
	}
	path := writeTemp(t, "m.gguf", b)
	numbered, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer numbered.Close()
	for name, want := range parts {
		full := "model.layers.1.linear_attn." + name
		x, _ := numbered.Tensor(full)
		got := make([]byte, x.Bytes)
		if err := numbered.ReadRows(full, 0, int(x.Rows()), got); err != nil {
			t.Fatal(err)
		}
		each := int(x.Bytes) / len(want)
		for i, row := range want {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(got[i*each:])); math.Abs(float64(v)-float64(row)) > 1e-6 {
				t.Errorf("%s: row %d is row %v of the file, want %d", name, i, v, row)
			}
		}
		if len(x.Shape) > 1 { // one row alone
			if err := numbered.ReadRows(full, len(want)-3, 1, got[:each]); err != nil || math.Float32frombits(binary.LittleEndian.Uint32(got)) != float32(want[len(want)-3]) {
				t.Errorf("%s: row %d read alone is another: %v", name, len(want)-3, err)
			}
		}
	}
	if x, _ := numbered.Tensor("model.layers.0.linear_attn.conv1d.weight"); !slices.Equal(x.Shape, []int64{16, 1, 4}) {
		t.Errorf("conv1d has the shape %v", x.Shape)
	}
	if cfg := numbered.Config(); cfg.Architecture != "Qwen3_5ForCausalLM" || cfg.PartialRotaryFactor != 0.5 {
		t.Errorf("%+v", cfg)
	}
	// A of the first layer is 0, which has no logarithm.
	err = numbered.ReadRows("model.layers.0.linear_attn.A_log", 0, 1, make([]byte, 16))
	wantError(t, err, path, "model.layers.0.linear_attn.A_log")
}

// nextToy is deltaToy for Qwen3-Next; fused has in_proj_qkvz in one matrix, as first files do.
func nextToy(fused bool) *toy {
	tensors := map[string][]uint64{
		"attn_qkv.weight": {16, 16}, "attn_gate.weight": {16, 8}, "ssm_ba.weight": {16, 8}, "ssm_conv1d.weight": {4, 16},
		"ssm_a": {4}, "ssm_dt.bias": {4}, "ssm_norm.weight": {2}, "ssm_out.weight": {8, 16}, "post_attention_norm.weight": {16},
		"ffn_gate_inp.weight": {16, 4}, "ffn_gate_inp_shexp.weight": {16}, "ffn_up_exps.weight": {16, 8, 4}, "ffn_up_shexp.weight": {16, 8},
	}
	if fused {
		delete(tensors, "attn_qkv.weight")
		delete(tensors, "attn_gate.weight")
		tensors["ssm_in.weight"] = []uint64{16, 24}
	}
	m := familyToy("qwen3next", tensors)
	for key, v := range map[string]uint32{"time_step_rank": 4, "inner_size": 8, "group_count": 2, "conv_kernel": 4, "state_size": 2} {
		m.set("qwen3next.ssm."+key, v)
	}
	for key, v := range map[string]uint32{"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 8, "expert_shared_feed_forward_length": 8, "rope.dimension_count": 4, "full_attention_interval": 2} {
		m.set("qwen3next."+key, v)
	}
	return m
}

// TestQwen3NextGGUF checks the two forms of Qwen3-Next's files, whose value heads have the order of the
// published model.
func TestQwen3NextGGUF(t *testing.T) {
	for _, fused := range []bool{false, true} {
		names := []string{"linear_attn.in_proj_ba.weight", "linear_attn.conv1d.weight", "linear_attn.A_log", "mlp.experts.up_proj", "mlp.shared_expert_gate.weight"}
		if fused {
			names = append(names, "linear_attn.in_proj_qkvz.weight")
		} else {
			names = append(names, "linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_z.weight")
		}
		for i := range names {
			names[i] = "model.layers.1." + names[i]
		}
		c := opened(t, nextToy(fused), names...)
		for _, x := range c.Tensors() {
			if x.tiles.each != 0 {
				t.Errorf("%s is read in tiles", x.Name)
			}
		}
		s, err := c.Config().Section("")
		if err != nil || c.Config().Architecture != "Qwen3NextForCausalLM" || s.FlagOr("in_proj_qkvz_split", fused) == fused || !s.FlagOr("norm_topk_prob", false) {
			t.Errorf("fused %t: %+v, %v", fused, c.Config(), err)
		}
	}
	_, err := openBytes("m.gguf", nextToy(false).set("qwen3next.ssm.time_step_rank", uint32(2)).bytes())
	wantError(t, err, "m.gguf", "model.layers.0.linear_attn.A_log")
}

// TestDeltaNetGGUFRefusals checks the keys of qwen35.
func TestDeltaNetGGUFRefusals(t *testing.T) {
	for field, change := range map[string]func(*toy){
		"qwen35.ssm.time_step_rank":                   func(m *toy) { m.set("qwen35.ssm.time_step_rank", uint32(3)) },
		"qwen35.ssm.group_count":                      func(m *toy) { m.set("qwen35.ssm.group_count", uint32(0)) },
		"model.layers.0.linear_attn.in_proj_z.weight": func(m *toy) { m.set("qwen35.ssm.inner_size", uint32(16)) },
		"qwen35.attention.recurrent_layers":           func(m *toy) { m.set("qwen35.attention.recurrent_layers", []int32{1, 0}) },
		"qwen35.rope.dimension_count":                 func(m *toy) { m.set("qwen35.rope.dimension_count", uint32(64)) },
		"qwen35.attention.layer_norm_rms_epsilon":     func(m *toy) { m.set("qwen35.attention.layer_norm_rms_epsilon", float32(-1)) },
	} {
		m := deltaToy("qwen35")
		change(m)
		_, err := openBytes("m.gguf", m.bytes())
		wantError(t, err, "m.gguf", field)
	}
}
