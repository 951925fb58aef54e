package replicas

import (
	"context"
	"encoding/binary"
	"fmt"

	"vapp.dev/tools/bench/workload"
)

// IDs is a tokenizer without text: a text is four bytes for each id. Random prompts, which have no text to begin with,
// need no other one, so a model can be planned without its files.
type IDs struct{ Vocab int }

// Encode implements workload.Tokenizer.
func (IDs) Encode(_ context.Context, text string) ([]int32, error) {
	if len(text)%4 != 0 {
		return nil, fmt.Errorf("a text of ids has %d bytes, want four for each", len(text))
	}
	out := make([]int32, len(text)/4)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32([]byte(text[4*i:])))
	}
	return out, nil
}

// Decode implements workload.Tokenizer.
func (IDs) Decode(_ context.Context, ids []int32) (string, error) {
	out := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		out = binary.LittleEndian.AppendUint32(out, uint32(id))
	}
	return string(out), nil
}

// Vocabulary implements workload.Tokenizer: every id may be in a prompt.
func (t IDs) Vocabulary(context.Context) (workload.Vocabulary, error) {
	v := workload.Vocabulary{Size: t.Vocab, Allowed: make([]int32, t.Vocab)}
	for i := range v.Allowed {
		v.Allowed[i] = int32(i)
	}
	return v, nil
}
