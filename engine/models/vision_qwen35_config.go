package models

import (
	"encoding/json"
	"fmt"

	"vapp.dev/engine/checkpoint"
)

// qwen35Vision holds the fields of vision_config.
type qwen35Vision struct {
	depth, hidden, inner, heads int
	channels, patch, frames     int // of a patch: colours, pixels per side, frames
	merge                       int // merge × merge patches form a token
	out                         int // the text model's hidden size
	side                        int // of the square grid of learned position embeddings
	theta                       float64
	sections                    [3]int // of the text model's rotation: time, row, column
}

// readQwen35Vision reads the tower's config, nil if there is none; defaults are transformers'. It
// ignores deepstack_visual_indexes, as transformers does: Qwen3.5 has no deepstack, unlike Qwen3-VL.
func readQwen35Vision(c checkpoint.Config) (*qwen35Vision, error) {
	if !qwen35Sees(c.Architecture) {
		return nil, nil
	}
	s, err := c.Section("vision_config")
	if s == nil || err != nil {
		return nil, err
	}
	const most = 1 << 16
	v := &qwen35Vision{
		depth: s.CountOr("depth", 1, 1024, 27), hidden: s.CountOr("hidden_size", 1, most, 1152), inner: s.CountOr("intermediate_size", 1, 1<<20, 4304),
		heads: s.CountOr("num_heads", 1, most, 16), channels: s.CountOr("in_channels", 1, 64, 3), patch: s.CountOr("patch_size", 1, 256, 16),
		frames: s.CountOr("temporal_patch_size", 1, 64, 2), merge: s.CountOr("spatial_merge_size", 1, 64, 2), out: s.CountOr("out_hidden_size", 1, 1<<20, 3584),
	}
	places := s.CountOr("num_position_embeddings", 1, 1<<24, 2304)
	act := s.TextOr("hidden_act", "gelu_pytorch_tanh")
	if err := s.Err(); err != nil {
		return nil, err
	}
	v.theta = 10000
	if rope := s.Section("rope_parameters"); rope != nil {
		v.theta = rope.RealOr("rope_theta", 1, 1e15, v.theta)
		if err := rope.Err(); err != nil {
			return nil, err
		}
	}
	if v.sections, err = mropeSections(c); err != nil {
		return nil, err
	}
	for v.side = 1; v.side*v.side < places; v.side++ {
	}
	switch {
	case v.side*v.side != places:
		return nil, &UnsupportedError{fmt.Sprintf("num_position_embeddings %d", places), "learned positions are a square grid"}
	case v.hidden%v.heads != 0 || v.hidden/v.heads%4 != 0:
		return nil, &UnsupportedError{fmt.Sprintf("a vision tower of hidden size %d with %d heads", v.hidden, v.heads), "the size of a head must be a whole multiple of 4"}
	case v.out != c.HiddenSize:
		return nil, &UnsupportedError{fmt.Sprintf("out_hidden_size %d", v.out), fmt.Sprintf("the text model's hidden_size is %d", c.HiddenSize)}
	case act != "gelu_pytorch_tanh":
		return nil, &UnsupportedError{"hidden_act " + act + " of the vision tower", "it has gelu_pytorch_tanh"}
	}
	return v, nil
}

// visionTensors adds the tower's tensors to l.
func (v *qwen35Vision) visionTensors(l *tensorList) {
	if v == nil {
		return
	}
	const p = "model.visual."
	pair := func(name string, rows int, shape ...int) {
		l.add(p+name+".weight", append([]int{rows}, shape...)...)
		l.add(p+name+".bias", rows)
	}
	pair("patch_embed.proj", v.hidden, v.channels, v.frames, v.patch, v.patch)
	l.add(p+"pos_embed.weight", v.side*v.side, v.hidden)
	for i := range v.depth {
		b := fmt.Sprintf("blocks.%d.", i)
		pair(b+"norm1", v.hidden)
		pair(b+"norm2", v.hidden)
		pair(b+"attn.qkv", 3*v.hidden, v.hidden)
		pair(b+"attn.proj", v.hidden, v.hidden)
		pair(b+"mlp.linear_fc1", v.inner, v.hidden)
		pair(b+"mlp.linear_fc2", v.hidden, v.inner)
	}
	merged := v.hidden * v.merge * v.merge
	pair("merger.norm", v.hidden)
	pair("merger.linear_fc1", merged, merged)
	pair("merger.linear_fc2", v.out, merged)
}

// mropeSections reads mrope_section of the text model's rope_parameters: the numbers of frequencies
// for time, row and column. transformers' default is 11, 11, 10.
func mropeSections(c checkpoint.Config) ([3]int, error) {
	var raw struct {
		Text struct {
			Rope struct {
				Section     []int `json:"mrope_section"`
				Interleaved *bool `json:"mrope_interleaved"`
			} `json:"rope_parameters"`
		} `json:"text_config"`
	}
	raw.Text.Rope.Section = []int{11, 11, 10}
	if err := json.Unmarshal(c.Raw, &raw); err != nil || len(raw.Text.Rope.Section) != 3 {
		return [3]int{}, &UnsupportedError{"mrope_section", "it is not a list of three whole numbers"}
	}
	if in := raw.Text.Rope.Interleaved; in != nil && !*in {
		return [3]int{}, &UnsupportedError{"mrope_interleaved false", "transformers interleaves the axes"}
	}
	out := [3]int(raw.Text.Rope.Section)
	for _, n := range out {
		if n < 0 || n > 1<<14 {
			return out, &UnsupportedError{fmt.Sprintf("mrope_section %v", out), "a section is 0 to 16384 frequencies"}
		}
	}
	return out, nil
}
