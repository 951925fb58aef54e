package metrics

import (
	"strings"
	"testing"
	"time"
)

// TestAdapters checks the series of LoRA: its labels are those of the scrape, and there is one.
func TestAdapters(t *testing.T) {
	const name = "vllm:lora_requests_info"
	m := New(Config{Model: "m", MaxModelLen: 64})
	if got := exported(t, m, name); got != "" {
		t.Fatal("without LoRA:", got)
	}
	var use AdapterUse
	m.WatchAdapters(func() AdapterUse { return use }, func() time.Time { return time.Unix(1700000000, 5e8) })
	for _, c := range []struct {
		use  AdapterUse
		want string
	}{
		{AdapterUse{Slots: 2}, `max_lora="2",running_lora_adapters="",waiting_lora_adapters=""`},
		{AdapterUse{Slots: 2, Running: []string{"sql", "a/b"}, Waiting: []string{"sql"}}, `max_lora="2",running_lora_adapters="a/b,sql",waiting_lora_adapters="sql"`},
	} {
		use = c.use
		if got, want := exported(t, m, name), name+"{"+c.want+"} 1.7000000005e+09\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// exported returns the lines of GET /metrics of a series, without comments.
func exported(t *testing.T, m *Metrics, name string) string {
	t.Helper()
	text, _ := scrape(t, m, "")
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name) {
			out.WriteString(line)
		}
	}
	return out.String()
}
