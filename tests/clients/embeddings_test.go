//go:build clients

package clients

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
)

// embedder is a small random checkpoint with recorded results of transformers.
const embedder = "../../engine/models/testdata/pooling/qwen3-embed"

// TestEmbeddings checks that openai-go gets the vectors recorded with transformers, as
// numbers and in base64, and errors for routes that need a generating model.
func TestEmbeddings(t *testing.T) {
	b, err := os.ReadFile(embedder + "/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Runs []struct {
			Text   string
			IDs    []int64
			Values []float64
		}
	}
	if err := json.Unmarshal(b, &recorded); err != nil {
		t.Fatal(err)
	}
	s, err := startModel(embedder, `maxModelLen: 256, memory: {kvCache: "8MiB", kvCacheDtype: "float32"}, model: dtype: "float32", backend: "ref"`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(s.dir)
	}()
	c, ctx := clientOf(s.url, "none", 0), context.Background()
	var texts []string
	for _, r := range recorded.Runs {
		texts = append(texts, r.Text)
	}
	many := openai.EmbeddingNewParams{Model: modelName, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: texts}}
	got, err := c.Embeddings.New(ctx, many)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Data) != len(texts) || got.Object != "list" || got.Model != modelName || got.Usage.PromptTokens == 0 || got.Usage.TotalTokens != got.Usage.PromptTokens {
		t.Fatalf("%d vectors, %+v", len(got.Data), got.Usage)
	}
	for i, r := range recorded.Runs {
		near(t, r.Text, got.Data[i].Embedding, r.Values)
	}
	ids := openai.EmbeddingNewParams{Model: modelName, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfTokens: recorded.Runs[1].IDs}}
	if one, err := c.Embeddings.New(ctx, ids); err != nil {
		t.Error(err)
	} else {
		near(t, "ids", one.Data[0].Embedding, recorded.Runs[1].Values)
	}
	checkBase64(t, c, many, recorded.Runs[0].Values)
	var refused *openai.Error
	many.Dimensions = openai.Int(8)
	if _, err := c.Embeddings.New(ctx, many); !errors.As(err, &refused) || refused.StatusCode != 400 || !strings.Contains(refused.Message, "matryoshka") {
		t.Errorf("dimensions: %v", err)
	}
	if _, err := c.Chat.Completions.New(ctx, ask(paris)); !errors.As(err, &refused) || refused.StatusCode != 501 || !strings.Contains(refused.Message, "does not support Chat Completions API") {
		t.Errorf("chat: %v", err)
	}
	plain := client()
	if _, err := plain.Embeddings.New(ctx, ids); !errors.As(err, &refused) || refused.StatusCode != 501 || !strings.Contains(refused.Message, "does not support Embeddings API") {
		t.Errorf("a model that writes: %v", err)
	}
}

// checkBase64 requests base64, the default of the Python and Node clients.
func checkBase64(t *testing.T, c openai.Client, p openai.EmbeddingNewParams, want []float64) {
	t.Helper()
	p.EncodingFormat = openai.EmbeddingNewParamsEncodingFormatBase64
	var reply struct {
		Data []struct{ Embedding string }
	}
	if err := c.Post(context.Background(), "embeddings", p, &reply); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(reply.Data[0].Embedding)
	if err != nil {
		t.Fatal(err)
	}
	var got []float64
	for ; len(raw) >= 4; raw = raw[4:] {
		got = append(got, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
	}
	near(t, "base64", got, want)
}

func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, recorded %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 2e-5 {
			t.Errorf("%s: number %d is %g, recorded %g", what, i, got[i], want[i])
			return
		}
	}
}
