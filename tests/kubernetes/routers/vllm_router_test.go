package routers

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
)

// TestVLLMRouter runs vllm-router of PyPI with its default policy before two servers, of which one holds 64 streams. The
// policy sends a request to the prefix it knows, unless loads differ by more than a threshold. The streams come through the router, as it counts the requests that it sent: it reads no metric of a worker
// that decides this.
func TestVLLMRouter(t *testing.T) {
	python, port := program(t, "VLLM_ROUTER_PYTHON"), fleet(t)
	own, metrics := freePort(t, "127.0.0.1"), freePort(t, "127.0.0.1")
	urls := []string{"http://" + hosts[0] + ":" + port, "http://" + hosts[1] + ":" + port}
	start(t, nil, python, "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", own, "--prometheus-port", metrics,
		"--policy", "cache_aware", "--balance-abs-threshold", "8", "--balance-rel-threshold", "1.1", "--worker-urls", urls[0])
	router := "http://127.0.0.1:" + own
	await(t, "the router is ready", func() bool { return answers(router + "/readiness") })
	occupy(t, router, urls[0], 64, "")
	// The second worker joins: all streams are the first one's.
	if err := post(router + "/add_worker?url=" + urls[1]); err != nil {
		t.Fatal(err)
	}
	before := succeeded(t, urls[1])
	served := make(chan error)
	for i := range 200 {
		go func() { served <- complete(router, body(fmt.Sprintf("%d green bottles", i), 1, false)) }()
		if i%4 < 3 {
			continue
		}
		for range 4 {
			if err := <-served; err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := succeeded(t, urls[1]) - before; n < 160 {
		t.Errorf("%d of 200 went to the idle server, want 160 or more", n)
	} else {
		t.Logf("%d of 200 went to the idle server", n)
	}
}

var successes = regexp.MustCompile(`(?m)^vllm:request_success_total\{.*\} (\d+)$`)

// succeeded returns how many requests a server has answered.
func succeeded(t *testing.T, url string) (n int) {
	t.Helper()
	for _, m := range successes.FindAllStringSubmatch(get(t, url+"/metrics"), -1) {
		k, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	return n
}
