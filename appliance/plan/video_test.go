package plan_test

import (
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
)

// TestVideoItems: the plan has memory for the largest image or frame of a video that requests may have.
func TestVideoItems(t *testing.T) {
	const gemma, qwen = "google/gemma-4-26B-A4B-it", "Qwen/Qwen3.5-27B-FP8"
	for _, c := range []struct {
		model, fields string
		patches       int
	}{
		{gemma, `limits: video: 1`, 630},
		{gemma, `limits: {image: 1, video: 1}`, 2520},
		{gemma, `limits: {image: 1, video: 1}, image: tokens: 70`, 630},
		{qwen, `limits: video: 1`, 49152}, // half of 25165824 pixels
		{qwen, `limits: {image: 1, video: 1}`, 65536},
		{qwen, `limits: {image: 1, video: 1}, image: maxPixels: 1048576`, 49152},
		{qwen, `limits: {image: 1, video: 1}, image: maxPixels: 1048576, video: maxPixels: 4194304`, 8192},
	} {
		p := made(t, on(t, c.model, "multimodal: {"+c.fields+"}", "h200"))
		if got := p.Account.Items.Patches; got != c.patches {
			t.Errorf("%s, %s: %d patches, want %d", c.model, c.fields, got, c.patches)
		}
		if bytes, least := p.Ledger.Bytes("item"), int64(c.patches)*3*16*16; bytes < least || bytes > 3*least+2<<20 {
			t.Errorf("%s, %s: item takes %d bytes, want at least %d", c.model, c.fields, bytes, least)
		}
	}
	_, err := plan.Make(on(t, gemma, "multimodal: {limits: video: 1, video: maxPixels: 1048576}", "h200"))
	if want := "has 70 tokens for a frame of a video; leave it out"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
