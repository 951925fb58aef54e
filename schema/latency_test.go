package schema

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestLatency: bounds at loads, and texts that are none with the reason.
func TestLatency(t *testing.T) {
	for text, want := range map[string]Latency{
		"<40ms @ 16x2K": {Duration(40 * time.Millisecond), 16, 2048},
		"<2s @ 4K":      {Duration(2 * time.Second), 1, 4096},
		"<1.5s@1000":    {Duration(1500 * time.Millisecond), 1, 1000},
		"< 1m @ 2x1k":   {Duration(time.Minute), 2, 1000},
		"<90m @ 1":      {Duration(90 * time.Minute), 1, 1},
		"<0.4ms @ 1":    {Duration(400 * time.Microsecond), 1, 1},
	} {
		got, err := ParseLatency(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		var back Latency
		b, err := json.Marshal(got)
		if err != nil || json.Unmarshal(b, &back) != nil || back != got {
			t.Errorf("%s: written as %s, read as %+v", text, b, back)
		}
	}
	for text, want := range map[string]string{
		"40ms @ 16x2K": "not a bound at a load", "<40ms": "not a bound at a load", "<40 @ 2K": `"40" is no time`, "<-1s @ 2K": `"-1s" is no time`,
		"<0s @ 2K": `"0s" is no time`, "<40ms @ 16x2X": `"2X" is no length`, "<40ms @ 0x2K": `"0" is no number of sequences`, "<40ms @ x2K": `"" is no number`,
		"<40ms @ 99999999x2K": "no number of sequences", "<40ms @ 16x": `"" is no length`, "<40ms @ auto": `"auto" is no length`, "<40ms @ 4G": `"4G" is no length`,
		"<1h @ 2K": `"1h" is no time in ms, s or m`, "<40us @ 2K": `"40us" is no time`, "<1ns @ 2K": `"1ns" is no time`, "<+1s @ 2K": `"+1s" is no time`, "<2µs @ 2K": `"2µs" is no time`,
		"": "not a bound", strings.Repeat("<", 100): "not a bound",
	} {
		if _, err := ParseLatency(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
