package cuda_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSerialized gives logs of ptxas to the check of scripts/kernels.sh: a line that says that products of
// warpgroups wait for each other fails with the file, the architecture and the line; other lines pass. ptxas 13.0.88
// wrote those of C7511, C7517 and C7519 for linear_wide.cu without a wait and with sums that change in between.
func TestSerialized(t *testing.T) {
	const other = `ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'vapp_linear_bf16_wide' for 'sm_90a'
ptxas info    : Function properties for vapp_linear_bf16_wide
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 250 registers, used 2 barriers, 5752 bytes smem
`
	for name, line := range map[string]string{
		"nothing":   "",
		"registers": "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'vapp_linear_bf16_wide'",
		"waits":     "ptxas info    : (C7517) warpgroup.wait is injected in around line 1034 by compiler to allow use of registers defined by GMMA in function 'vapp_linear_q8_0_wide'",
		"fences":    "ptxas info    : (C7519) warpgroup.arrive is injected in around line 731 by compiler to allow use of registers in GMMA in function 'vapp_linear_bf16_wide'",
		"no number": "ptxas info    : Potential Performance Loss: wgmma.mma_async instructions are serialized due to ill formed pipeline stage in the function 'vapp_linear_bf16_wide'",
		"warning":   "ptxas warning : (C7510) a reason that a later ptxas has in function 'vapp_linear_bf16_wide'",
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			text := other
			if line != "" {
				text += line + "\n"
			}
			if err := os.WriteFile(log, []byte(text+other), 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("../../scripts/kernels.sh", "log", "linear_wide", "90a", log).CombinedOutput()
			if line == "" {
				if err != nil || len(out) > 0 {
					t.Errorf("%v: %s", err, out)
				}
				return
			}
			if want := "kernels: kernels/cuda/linear_wide.cu for sm_90a: " + line; err == nil || strings.TrimSpace(string(out)) != want {
				t.Errorf("%v: %s\nwant %s", err, out, want)
			}
		})
	}
	if out, err := exec.Command("../../scripts/kernels.sh", "log", "norm", "80", filepath.Join(t.TempDir(), "none")).CombinedOutput(); err == nil || !strings.Contains(string(out), "the log of kernels/cuda/norm.cu for sm_80 cannot be read") {
		t.Errorf("no log: %v: %s", err, out)
	}
}
