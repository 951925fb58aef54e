//go:build libzmq

package routers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llm-d/llm-d-kv-cache-manager/pkg/kvcache/kvblock"
	"github.com/llm-d/llm-d-kv-cache-manager/pkg/kvcache/kvevents"
	"k8s.io/apimachinery/pkg/util/sets"
)

// TestKVEvents has the reader of llm-d's precise-prefix-cache-scorer between two servers: its own subscriber, decoder, index and
// hashing. After a prompt was sent to one server, the index has every full block of the prompt there by the hash that the
// scorer computes from the tokens, and none at the other server.
func TestKVEvents(t *testing.T) {
	const seed, block = "42", 16
	endpoint := "tcp://127.0.0.1:" + freePort(t, "127.0.0.1")
	var more [][]string
	for _, h := range hosts {
		more = append(more, []string{"--set", fmt.Sprintf("serve.kvEvents={endpoint: %q, topic: \"kv@%s@smollm2\", hashSeed: %q}", endpoint, h, seed), "--set", fmt.Sprint("memory.blockSize=", block)})
	}
	index, err := kvblock.NewIndex(t.Context(), kvblock.DefaultIndexConfig())
	if err != nil {
		t.Fatal(err)
	}
	pool := kvevents.NewPool(&kvevents.Config{ZMQEndpoint: endpoint, TopicFilter: "kv@", Concurrency: 2}, index)
	pool.Start(t.Context()) // until the test's end
	port := fleet(t, more...)
	hash := kvblock.NewChunkedTokenDatabase(&kvblock.TokenProcessorConfig{BlockSize: block, HashSeed: seed})
	for i, h := range hosts {
		url := "http://" + h + ":" + port
		// A first event is lost if the server connects later, and then stays lost: another prompt is sent.
		await(t, "the index knows a prompt of "+h, func() bool {
			prompt := fmt.Sprintf("Server %d at %d: %s", i, time.Now().UnixNano(), strings.Repeat("one two three four five six seven eight nine ten. ", 8))
			tokens := tokenize(t, url, prompt)
			keys := hash.TokensToKVBlockKeys(tokens, "smollm2")
			if len(keys) < 5 || len(keys) != len(tokens)/block {
				t.Fatalf("%d tokens have %d keys", len(tokens), len(keys))
			}
			if err := complete(url, body(prompt, 1, false)); err != nil {
				t.Fatal(err)
			}
			for range 40 { // the events of a step follow its reply
				found, err := index.Lookup(t.Context(), keys, sets.New[string]())
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, k := range keys {
					for _, e := range found[k] {
						if e != (kvblock.PodEntry{PodIdentifier: h, DeviceTier: "gpu"}) {
							t.Fatalf("%v has a block of a prompt that was sent to %s", e, h)
						}
						n++
					}
				}
				if n == len(keys) {
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
