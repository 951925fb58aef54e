package main

import (
	"strings"
	"testing"
)

// TestVLLMWords checks option names with underscores, and options that take several words.
func TestVLLMWords(t *testing.T) {
	for in, want := range map[string]string{
		"bench serve --num_prompts 5 --top_k=3":                 "bench serve --num-prompts 5 --top-k=3",
		"bench serve --metadata a_b=c_d e=f --header X=1 Y=2":   "bench serve --metadata a_b=c_d --metadata=e=f --header X=1 --header=Y=2",
		"bench serve --metadata=a=1 b=2 --compare a_b.json c_d": "bench serve --metadata=a=1 --metadata=b=2 --compare a_b.json c_d",
		"bench serve --goodput ttft:5 e2el:9 --save-result x":   "bench serve --goodput ttft:5 --goodput=e2el:9 --save-result x",
		"bench latency p_q.cue --num_iters 3":                   "bench latency p_q.cue --num-iters 3",
		"import --served_name x":                                "import --served_name x",
		"":                                                      "",
	} {
		if got := strings.Join(vllmWords(strings.Fields(in)), " "); got != want {
			t.Errorf("%s\n became %s\n want   %s", in, got, want)
		}
	}
}
