// Package media decodes images to rows of red, green and blue, with the pixels that vLLM's image
// loader gets from Pillow: the EXIF orientation is applied, transparency is put over white, and
// everything else becomes RGB by Pillow's integers. PNG, JPEG, WebP, GIF, BMP and TIFF are read; GIF
// and WebP have frames. The format is found by the first bytes: MIME types do not matter, as in vLLM.
//
// JPEG is decoded by libjpeg-turbo's decoder and WebP by libwebp, as in Pillow, from the archive of
// engine/tokenizer, which also unpacks PNG of 8 bits a sample that is not interlaced. Pixels are equal to
// Pillow's, byte for byte, with and without SIMD. Other PNG, GIF and TIFF are unpacked by Go's packages.
// All are converted here. Every header is checked against the caller's
// bounds before memory is allocated for pixels.
//
// Where this package differs from Pillow 13:
//   - It refuses by name what it does not read: lossless JPEG, TIFF with CMYK, YCbCr, JPEG, fax,
//     planes or fewer than 8 bits a grey, BMP with unusual masks, animations outside of their screen.
//   - It refuses a PNG or TIFF with a wrong checksum behind its last row. It never decompresses
//     profiles and texts that it does not need, so they cannot be bombs.
//   - It refuses damaged pixels, as Pillow does. vLLM 0.33 swallows Pillow's first error while it looks
//     for the orientation, and then serves black pixels.
//   - JPEG has at most 100 scans.
//
// Without cgo JPEG is decoded by image/jpeg and WebP by golang.org/x/image/webp, which repeat chroma
// samples where libjpeg-turbo and libwebp interpolate them, and animated WebP is refused. Over the
// images of testdata, whose colors change more than those of photographs, samples of JPEG differ by
// 6.7 in the mean and 129 at most, those of WebP by 3.9 and 75: TestWithoutCgo.
//
// The package must not open files, use the network, or scale images. Start reading at Decode.
package media
