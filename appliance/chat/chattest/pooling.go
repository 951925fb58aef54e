package chattest

import (
	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
)

// Width is the length of the vectors of Embeds.
const Width = 4

// Embeds returns the configuration of a model with embeddings of the last token, which may be
// truncated to 2 numbers.
func Embeds() *chat.PoolingConfig {
	return &chat.PoolingConfig{Task: chat.TaskEmbed, Mode: engine.PoolingLast, Width: Width, Normalize: true, Dimensions: []int{2, Width}, AtOnce: 2}
}

// Classifies returns the configuration of a classifier with these classes, at most Width.
func Classifies(labels ...string) *chat.PoolingConfig {
	p := &chat.PoolingConfig{Task: chat.TaskClassify, Mode: engine.PoolingLast, Width: len(labels), Activation: "softmax", Labels: labels, AtOnce: 2}
	if len(labels) == 1 {
		p.Activation = "sigmoid"
	}
	return p
}

// pool answers a pooling request at once: the vector of token n (from 1) is
// {id/64, n, 1, −1}, where special tokens have id 0.
func (m *Model) pool(r engine.Request) *engine.Stream {
	st, push := engine.NewStream(r.ID, func() {})
	width := m.Pooling.Width
	var all []float32
	for i, id := range r.Prompt {
		if id >= EOS {
			id = 0
		}
		all = append(all, []float32{float32(id) / 64, float32(i + 1), 1, -1}[:width]...)
	}
	if r.Pooling != engine.PoolingAll {
		all = all[len(all)-width:]
	}
	push(engine.Event{Token: -1, StopToken: -1, Finish: engine.FinishStop, Pooled: all, Cached: m.Cached})
	return st
}
