package routers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache/kvblock"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents/engineadapter"
	"k8s.io/apimachinery/pkg/util/sets"
)

// TestKVEvents has the reader of llm-d's precise-prefix-cache-scorer subscribe to two servers: its own subscriber, decoder, index and
// hashing. After a prompt was sent to one server, the index has every full block of the prompt there, by the key that the scorer
// computes from the tokens, and none at the other server.
func TestKVEvents(t *testing.T) {
	const block = 16
	var more [][]string
	var endpoints []string
	for _, h := range hosts {
		p := freePort(t, "127.0.0.1")
		endpoints = append(endpoints, "tcp://127.0.0.1:"+p)
		more = append(more, []string{"--set", fmt.Sprintf(`serve.kvEvents={endpoint: "tcp://*:%s", topic: "kv@%s@smollm2"}`, p, h), "--set", fmt.Sprint("memory.blockSize=", block)})
	}
	port := fleet(t, more...)
	index, err := kvblock.NewIndex(t.Context(), kvblock.DefaultIndexConfig())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kvblock.NewChunkedTokenDatabase(&kvblock.TokenProcessorConfig{BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	pool := kvevents.NewPool(&kvevents.Config{TopicFilter: "kv@", Concurrency: 2}, index, keys, engineadapter.NewVLLMAdapter())
	pool.Start(t.Context()) // until the test's end
	subscribers := kvevents.NewSubscriberManager(pool)
	for i, h := range hosts {
		if err := subscribers.EnsureSubscriber(t.Context(), h, endpoints[i], "kv@", true); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { subscribers.Shutdown(context.Background()) })
	for i, h := range hosts {
		url := "http://" + h + ":" + port
		// What was published before the subscriber was there is lost to it: then another prompt is sent.
		await(t, "the index knows a prompt of "+h, func() bool {
			prompt := fmt.Sprintf("Server %d at %d: %s", i, time.Now().UnixNano(), strings.Repeat("one two three four five six seven eight nine ten. ", 8))
			tokens := tokenize(t, url, prompt)
			want, err := keys.TokensToKVBlockKeys(kvblock.EmptyBlockHash, tokens, "smollm2", nil)
			if err != nil || len(want) < 5 || len(want) != len(tokens)/block {
				t.Fatalf("%d tokens have %d keys, %v", len(tokens), len(want), err)
			}
			if err := complete(url, body(prompt, 1, false)); err != nil {
				t.Fatal(err)
			}
			for range 40 { // the events of a step follow its reply
				found, err := index.Lookup(t.Context(), want, sets.New[string]())
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, k := range want {
					for _, e := range found[k] {
						if e != (kvblock.PodEntry{PodIdentifier: h, DeviceTier: "gpu"}) {
							t.Fatalf("%v has a block of a prompt that was sent to %s", e, h)
						}
						n++
					}
				}
				if n == len(want) {
					t.Logf("%s has all %d blocks of a prompt", h, n)
					return true
				}
				time.Sleep(50 * time.Millisecond)
			}
			return false
		})
	}
}

// tokenize returns the tokens of a prompt.
func tokenize(t *testing.T, url, prompt string) []uint32 {
	t.Helper()
	b, _ := json.Marshal(map[string]string{"model": "smollm2", "prompt": prompt})
	r, err := http.Post(url+"/tokenize", "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var reply struct{ Tokens []uint32 }
	if err := json.NewDecoder(r.Body).Decode(&reply); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("/tokenize: %s, %v", r.Status, err)
	}
	return reply.Tokens
}
