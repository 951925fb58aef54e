package cpu

import (
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"testing"

	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels"
)

// TestPanelVersions checks the packed bytes of every format and variant. Cache files of packed
// weights outlive a binary: a change of the bytes needs a new PanelVersion.
func TestPanelVersions(t *testing.T) {
	const file = "testdata/panels.txt"
	var got []string
	for _, variant := range slices.Concat(linearVariants, withInt8(), []string{W8A8("generic"), W8A8("amx")}) {
		for _, f := range SupportedFormats(variant) {
			got = append(got, fmt.Sprintf("%s %v %d %08x", variant, f, PanelVersion(f), packedSum(t, variant, f)))
		}
	}
	text := strings.Join(got, "\n") + "\n"
	if *goldentest.Update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(b)), "\n")
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("%s is not in %s: where a variant packs a format in another way, raise its PanelVersion and run go test ./kernels/cpu -run TestPanelVersions -update", line, file)
		}
	}
	if len(want) != len(got) {
		t.Errorf("%s has %d lines, not %d: run with -update", file, len(want), len(got))
	}
}

func withInt8() []string {
	var out []string
	for _, v := range int8Variants {
		out = append(out, v+int8Suffix)
	}
	return out
}

// packedSum returns the checksum of a packed matrix with a partial panel, and with scales if f
// has them.
func packedSum(t *testing.T, variant string, f kernels.Format) uint32 {
	const rows, cols = panelRows + 8, 512
	m := Matrix{Variant: variant, Format: f, Rows: rows, Cols: cols}
	switch {
	case f == kernels.F8E4M3 || f == kernels.F8E5M2:
		m.Scales = BlockScales
	case f == kernels.I8 || f == kernels.NVFP4:
		m.Scales = ChannelScales
	}
	n, _, ok := m.Layout()
	if !ok {
		t.Fatalf("%s has no layout of %v", variant, f)
	}
	dst := make([]byte, n)
	m.PackRows(dst, 0, randomBytes(f.Bytes(rows*cols)))
	if m.Scales != NoScales {
		for r := range rows {
			m.PackScales(dst, r, []float32{1, float32(r), 3, 4}[:m.Across()])
		}
	}
	return crc32.ChecksumIEEE(dst)
}
