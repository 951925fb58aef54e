//go:build cgo

package cpu

import (
	"testing"
	"unsafe"

	"vapp.dev/kernels/cpu/native"
)

// TestMirrors compares the sizes of the Go structs with those of C.
func TestMirrors(t *testing.T) {
	structs, _, _ := native.StructSizes()
	want := [27]uintptr{
		unsafe.Sizeof(Pages{}), unsafe.Sizeof(Tokens{}), unsafe.Sizeof(StoreTokens{}), unsafe.Sizeof(Embed{}), unsafe.Sizeof(Norm{}),
		unsafe.Sizeof(Angles{}), unsafe.Sizeof(Rope{}), unsafe.Sizeof(Attention{}), unsafe.Sizeof(StoreKV{}), unsafe.Sizeof(GLU{}),
		unsafe.Sizeof(Gather{}), unsafe.Sizeof(Sample{}), unsafe.Sizeof(Linear{}), unsafe.Sizeof(Limit{}),
		unsafe.Sizeof(Elements{}), unsafe.Sizeof(Concat{}), unsafe.Sizeof(GatherLast{}), unsafe.Sizeof(Route{}), unsafe.Sizeof(Conv{}), unsafe.Sizeof(Delta{}),
		unsafe.Sizeof(DraftInput{}), unsafe.Sizeof(Verify{}), unsafe.Sizeof(GatherAccepted{}), unsafe.Sizeof(Propose{}), unsafe.Sizeof(Adapt{}), unsafe.Sizeof(LatentRope{}), unsafe.Sizeof(HeadLinear{}),
	}
	for i, n := range structs {
		if uintptr(n) != want[i] {
			t.Errorf("struct %d has %d bytes in C and %d in Go", i, n, want[i])
		}
	}
}
