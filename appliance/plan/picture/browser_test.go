//go:build browser

package picture_test

// This test opens pages in Chromium (make browser). With SCREENSHOTS=DIR it writes screenshots to DIR.

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"vapp.dev/appliance/plan"
	"vapp.dev/appliance/plan/picture"
	"vapp.dev/engine"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

// overlaps returns the pairs of visible labels of one axis, or of the curve, that overlap, labels that
// leave the window, and whether the page is wider than the window.
const overlaps = `(() => {
	const out = [];
	for (const box of document.querySelectorAll('.axis, .curve')) {
		const labels = [...box.querySelectorAll('span')].filter(s => s.offsetParent !== null);
		const rects = labels.map(s => s.getBoundingClientRect());
		rects.forEach((a, i) => {
			if (a.left < -1 || a.right > innerWidth + 1) out.push('outside: ' + labels[i].textContent);
			rects.slice(i + 1).forEach((b, k) => {
				if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
					out.push(labels[i].textContent + ' over ' + labels[i + 1 + k].textContent);
			});
		});
		if (labels.length < 3) out.push('only ' + labels.length + ' labels');
	}
	if (document.documentElement.scrollWidth > innerWidth) out.push('the page is ' + document.documentElement.scrollWidth + ' wide');
	return out;
})()`

// TestLabels: at the width of a phone, a tablet and a screen no labels overlap, and the page is not
// wider than the window.
func TestLabels(t *testing.T) {
	path := os.Getenv("CHROMIUM")
	if path == "" {
		t.Fatal("CHROMIUM names no browser; make browser finds or installs one")
	}
	options := append([]chromedp.ExecAllocatorOption{}, chromedp.NoFirstRun, chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.ExecPath(path), chromedp.Flag("disable-background-networking", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.WSURLReadTimeout(2*time.Minute))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(stop)
	for name, device := range map[string]string{
		"gemma4-fp8": "a100-80g", "gpt-oss-20b": "h100", "qwen35-27b-fp8": "h200", "llama-3.2-1b": "t4", "gemma4-31b": "b200", "qwen2-7b": "v100-32g",
	} {
		file := filepath.Join(t.TempDir(), name+".html")
		var page bytes.Buffer
		if err := picture.HTML(&page, ofProfile(t, name, device), picture.Section{Title: "What it says", Text: strings.Repeat("a long line ", 30)}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, page.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, width := range []int64{320, 380, 768, 1200} {
			var found []string
			var shot []byte
			err := chromedp.Run(ctx, emulation.SetDeviceMetricsOverride(width, 900, 1, false), chromedp.Navigate("file://"+file),
				chromedp.Evaluate(overlaps, &found), chromedp.FullScreenshot(&shot, 100))
			if err != nil {
				t.Fatal(err)
			}
			if len(found) > 0 {
				t.Errorf("%s on %s, %d pixels: %s", name, device, width, strings.Join(found, "; "))
			}
			if dir := os.Getenv("SCREENSHOTS"); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("plan-%s-%d.png", name, width)), shot, 0o600); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// ofProfile returns the plan of a shipped profile on a device of the catalogue.
func ofProfile(t *testing.T, name, device string) *plan.Plan {
	t.Helper()
	p, err := schema.Load("../../../profiles/" + name + ".cue")
	if err != nil {
		t.Fatal(err)
	}
	d, err := devices.Find(device)
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.Inspect(plan.Source(p, ""))
	if err != nil {
		t.Fatal(err)
	}
	made, err := plan.Make(plan.Inputs{Profile: p, Model: m, Opener: cuda.Opener{}, Facts: d.Facts("cuda")})
	if err != nil {
		t.Fatal(err)
	}
	return made
}
