package media

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"io"

	"golang.org/x/image/webp"

	"vapp.dev/engine/vision/rgb"
)

// goJPEG decodes with image/jpeg, for builds without cgo.
func goJPEG(data []byte, info Info) (*rgb.Image, error) {
	if n := bytes.Count(data, []byte{0xff, 0xda}); n > maxScans {
		return nil, refuse(Damaged, JPEG, "it has more than %d scans", maxScans)
	}
	m, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, goError(JPEG, err)
	}
	return convert(m, info)
}

// goWebP decodes a still image with golang.org/x/image/webp, for builds without cgo.
func goWebP(data []byte, info Info) ([]Frame, error) {
	if info.Frames > 1 {
		return nil, refuse(Unsupported, WebP, "it is animated, which this binary does not read; build it with CGO_ENABLED=1")
	}
	m, err := webp.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, goError(WebP, err)
	}
	out, err := convert(m, info)
	return []Frame{{Image: out}}, err
}

func goError(f Format, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return refuse(Truncated, f, "the file ends before its last row")
	}
	return refuse(Damaged, f, "%v", err)
}

// convert returns m over white.
func convert(m image.Image, info Info) (*rgb.Image, error) {
	if b := m.Bounds(); b.Dx() != info.Width || b.Dy() != info.Height {
		return nil, refuse(Damaged, info.Format, "its data is of %d × %d pixels and its header of %d × %d", b.Dx(), b.Dy(), info.Width, info.Height)
	}
	out := rgb.New(info.Width, info.Height)
	for y := range out.Height {
		row := out.Row(y)
		for x := range out.Width {
			pixel(row[3*x:3*x+3], m, x, y, info.Format)
		}
	}
	return out, nil
}

func pixel(to []byte, m image.Image, x, y int, f Format) {
	switch m := m.(type) {
	case *image.Gray:
		fill(to, m.GrayAt(x, y).Y)
	case *image.CMYK:
		c := m.CMYKAt(x, y)
		to[0], to[1], to[2] = inks(c.C, c.K), inks(c.M, c.K), inks(c.Y, c.K)
	case *image.YCbCr:
		c := m.YCbCrAt(x, y)
		if f == WebP {
			to[0], to[1], to[2] = studio(c)
		} else {
			to[0], to[1], to[2] = color.YCbCrToRGB(c.Y, c.Cb, c.Cr)
		}
	case *image.NYCbCrA:
		c := m.NYCbCrAAt(x, y)
		r, g, b := studio(c.YCbCr)
		to[0], to[1], to[2] = overWhite(r, c.A), overWhite(g, c.A), overWhite(b, c.A)
	default:
		c := color.NRGBAModel.Convert(m.At(x, y)).(color.NRGBA)
		to[0], to[1], to[2] = overWhite(c.R, c.A), overWhite(c.G, c.A), overWhite(c.B, c.A)
	}
}

// studio returns red, green and blue of WebP's luma from 16 to 235, by libwebp's integers.
func studio(c color.YCbCr) (r, g, b uint8) {
	high := func(v uint8, by int) int { return int(v) * by >> 8 }
	clip := func(v int) uint8 { return uint8(max(0, min(v>>6, 255))) }
	y := high(c.Y, 19077)
	return clip(y + high(c.Cr, 26149) - 14234), clip(y - high(c.Cb, 6419) - high(c.Cr, 13320) + 8708), clip(y + high(c.Cb, 33050) - 17685)
}
