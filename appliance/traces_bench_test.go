//go:build streams

package appliance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/appliance/traces/tracestest"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
)

// TestTracesCost logs what traces cost at 64 streams of the default model: rounds of 64 streamed
// completions on two servers in turns, one without traces and one that records every request and sends
// it over gRPC to a collector. Clients and collector are in this process, and their time counts.
func TestTracesCost(t *testing.T) {
	const streams, tokens, rounds = 64, 32, 8
	model, err := filepath.Abs("../models/SmolLM2-135M-Instruct.Q4_1.gguf")
	if err != nil {
		t.Fatal(err)
	}
	collector := tracestest.New(t)
	servers := map[string]*server{}
	for name, more := range map[string]string{"off": "", "on": fmt.Sprintf(`traces: {endpoint: %q, sampling: 1}`, collector.GRPC)} {
		s := &server{profile: filepath.Join(t.TempDir(), "p.cue"), log: &logBuffer{}, ended: make(chan error, 1)}
		writeFile(t, s.profile, fmt.Sprintf(`package profiles
import "vapp.dev/schema"
schema.#Profile & {
	name: "streams"
	model: source: %q
	backend: "cpu"
	maxModelLen: 256
	memory: kvCache: "512MiB"
	scheduler: {maxNumSeqs: %d, prefixCaching: false}
	serve: {host: "127.0.0.1", port: 0, accessLog: false, %s}
}
`, model, streams, more))
		a, err := New(Config{Profile: s.profile, Machine: Machine{Backends: []backend.Opener{cpu.Opener{}}}, Version: "test", Log: s.log})
		if err != nil {
			t.Fatal(err)
		}
		s.Appliance, s.url = a, a.scheme()+"://"+a.Addr().String()
		ctx, drain := context.WithCancel(context.Background())
		go func() { s.ended <- a.Run(ctx) }()
		t.Cleanup(func() {
			drain()
			a.Abort(fmt.Errorf("the test is over"))
			<-s.ended
		})
		s.until(t, "ready", func() bool { return s.status(t, "/readyz") == http.StatusOK })
		servers[name] = s
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	round := func(s *server) (took, cpu time.Duration) {
		begun, before := time.Now(), cpuTime(t)
		var all sync.WaitGroup
		for range streams {
			all.Go(func() {
				body := fmt.Sprintf(`{"prompt":"Once upon a time there was","max_tokens":%d,"ignore_eos":true,"stream":true}`, tokens)
				r, err := client.Post(s.url+"/v1/completions", "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				defer r.Body.Close()
				if b, err := io.ReadAll(r.Body); err != nil || !strings.HasSuffix(string(b), "data: [DONE]\n\n") {
					t.Error(err, string(b))
				}
			})
		}
		all.Wait()
		return time.Since(begun), cpuTime(t) - before
	}
	times, cpus := map[string][]time.Duration{}, map[string][]time.Duration{}
	for i := range rounds + 1 {
		for _, name := range [][]string{{"off", "on"}, {"on", "off"}}[i%2] {
			took, cpu := round(servers[name])
			t.Logf("round %d, traces %s: %v, CPU %v", i, name, took.Round(time.Millisecond), cpu.Round(time.Millisecond))
			if i > 0 { // the first warms up
				times[name], cpus[name] = append(times[name], took), append(cpus[name], cpu)
			}
		}
	}
	for what, all := range map[string]map[string][]time.Duration{"wall time": times, "CPU time": cpus} {
		for _, list := range all {
			slices.Sort(list)
		}
		off, on := all["off"], all["on"]
		t.Logf("%s of a round of %d × %d tokens: median %v without, %v with traces: %+.2f %%; fastest %v and %v: %+.2f %%", what, streams, tokens,
			off[rounds/2], on[rounds/2], 100*(on[rounds/2].Seconds()/off[rounds/2].Seconds()-1), off[0], on[0], 100*(on[0].Seconds()/off[0].Seconds()-1))
	}
	if n := len(collector.Wait("llm_request", (rounds+1)*streams)); n != (rounds+1)*streams {
		t.Errorf("%d spans", n)
	}
}
