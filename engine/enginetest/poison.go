package enginetest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tie matches the config field that makes the head share the embedding.
var tie = regexp.MustCompile(`("tie_word_embeddings"\s*:\s*)true`)

// Poison copies the Hugging Face checkpoint from, one safetensors file in F32, F16 or BF16, to
// the directory to, which it creates. In the copy the first element of token id's embedding is
// x, so that a NaN or an infinity reaches everything computed from that token and nothing else.
// A head that shares the embedding becomes a separate matrix with the original numbers.
func Poison(to, from string, id int, x float32) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	config, weights := filepath.Join(to, "config.json"), filepath.Join(to, "model.safetensors")
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	file, err := os.ReadFile(weights)
	if err != nil {
		return err
	}
	if file, err = poison(file, id, x, tie.Match(text)); err != nil {
		return fmt.Errorf("%s: %w", weights, err)
	}
	for name, b := range map[string][]byte{config: tie.ReplaceAll(text, []byte("${1}false")), weights: file} {
		if err := os.Remove(name); err != nil { // the copy may be read-only
			return err
		}
		if err := os.WriteFile(name, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// poison applies Poison to the bytes of the file.
func poison(file []byte, id int, x float32, tied bool) ([]byte, error) {
	n := int(binary.LittleEndian.Uint64(file))
	head := map[string]json.RawMessage{}
	if err := json.Unmarshal(file[8:8+n], &head); err != nil {
		return nil, err
	}
	body := slices.Clone(file[8+n:])
	for name, entry := range head {
		if !strings.HasSuffix(name, ".embed_tokens.weight") {
			continue
		}
		var t goldenTensor
		if err := json.Unmarshal(entry, &t); err != nil {
			return nil, err
		}
		if len(t.Shape) != 2 || id < 0 || int64(id) >= t.Shape[0] {
			return nil, fmt.Errorf("%s of shape %v has no row %d", name, t.Shape, id)
		}
		if tied {
			own := t
			own.Offsets = [2]int64{int64(len(body)), int64(len(body)) + t.Offsets[1] - t.Offsets[0]}
			body = append(body, body[t.Offsets[0]:t.Offsets[1]]...)
			head["lm_head.weight"] = mustJSON(own)
		}
		row := body[t.Offsets[0]+(t.Offsets[1]-t.Offsets[0])/t.Shape[0]*int64(id):]
		if err := put(row, t.DType, x); err != nil {
			return nil, err
		}
		return join(head, body), nil
	}
	return nil, fmt.Errorf("no tensor of embeddings")
}

// put stores x, a NaN or an infinity, as an element of dtype.
func put(b []byte, dtype string, x float32) error {
	bits := math.Float32bits(x)
	switch dtype {
	case "F32":
		binary.LittleEndian.PutUint32(b, bits)
	case "BF16":
		binary.LittleEndian.PutUint16(b, uint16(bits>>16))
	case "F16":
		binary.LittleEndian.PutUint16(b, uint16(bits>>16&0x8000|0x7c00|bits>>13&0x3ff))
	default:
		return fmt.Errorf("embeddings in %s", dtype)
	}
	return nil
}

func join(head map[string]json.RawMessage, body []byte) []byte {
	text, err := json.Marshal(head)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(out, text...), body...)
}
