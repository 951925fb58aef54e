//go:build cgo

package media

/*
#cgo CFLAGS: -I${SRCDIR}/../../engine/tokenizer
#include "vapptext.h"
*/
import "C"

import (
	"slices"
	"time"
	"unsafe"

	"vapp.dev/engine/vision/rgb"

	// It links the archive that has the decoders, and relinks when the archive changes.
	_ "vapp.dev/engine/tokenizer"
)

var reasons = map[C.int32_t]Reason{C.VAPPTEXT_IMAGE: Damaged, C.VAPPTEXT_TRUNCATED: Truncated}

// failure returns the error in e for a code that is not 0, and frees its text.
func failure(code C.int32_t, e *C.vapptext_error, f Format) error {
	if code == 0 {
		return nil
	}
	text := C.GoStringN((*C.char)(unsafe.Pointer(e.text.ptr)), C.int(e.text.len))
	C.vapptext_free(e.text)
	r := reasons[code]
	if r == 0 {
		r = Failed
	}
	return refuse(r, f, "%s", text)
}

func bytesOf(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

func decodeJPEG(data []byte, info Info) (*rgb.Image, error) {
	m := rgb.New(info.Width, info.Height)
	var e C.vapptext_error
	code := C.vapptext_jpeg(bytesOf(data), C.size_t(len(data)), C.uint32_t(info.Width), C.uint32_t(info.Height), maxScans,
		bytesOf(m.Pix), C.size_t(len(m.Pix)), &e)
	if err := failure(code, &e, JPEG); err != nil {
		return nil, err
	}
	return m, nil
}

// unpackRows returns the rows of a PNG's samples, of one byte each, that are not interlaced.
func (p *pngFile) unpackRows(samples int) ([]byte, error) {
	row := samples * p.Width
	out, data := make([]byte, row*p.Height), slices.Concat(p.data...)
	var e C.vapptext_error
	code := C.vapptext_png(bytesOf(data), C.size_t(len(data)), C.uint32_t(p.Height), C.size_t(row), C.uint32_t(samples),
		bytesOf(out), C.size_t(len(out)), &e)
	return out, failure(code, &e, PNG)
}

func decodeWebP(data []byte, info Info, picks []int) ([]Frame, error) {
	one := 3 * info.Width * info.Height
	all := make([]byte, one*len(picks))
	indexes, starts := make([]C.uint32_t, len(picks)), make([]C.int32_t, len(picks))
	for i, p := range picks {
		indexes[i] = C.uint32_t(p)
	}
	var e C.vapptext_error
	code := C.vapptext_webp(bytesOf(data), C.size_t(len(data)), C.uint32_t(info.Width), C.uint32_t(info.Height),
		&indexes[0], C.size_t(len(indexes)), &starts[0], bytesOf(all), C.size_t(len(all)), &e)
	if err := failure(code, &e, WebP); err != nil {
		return nil, err
	}
	frames := make([]Frame, len(picks))
	for i := range frames {
		pix := all[i*one : (i+1)*one : (i+1)*one]
		frames[i] = Frame{
			Image: &rgb.Image{Width: info.Width, Height: info.Height, Pix: pix},
			Start: time.Duration(starts[i]) * time.Millisecond,
		}
	}
	return frames, nil
}
