// Package media decodes images to rows of red, green and blue, with the pixels that vLLM's image
// loader gets from Pillow: the EXIF orientation is applied, transparency is put over white, and
// everything else becomes RGB by Pillow's integers. PNG, JPEG, WebP, GIF, BMP and TIFF are read; GIF
// and WebP have frames.
//
// JPEG is decoded by libjpeg-turbo's decoder and WebP by libwebp, as in Pillow, from the archive of
// engine/tokenizer. Pixels are equal to Pillow's, byte for byte, with and without SIMD. PNG, GIF and
// TIFF are unpacked by Go's packages and converted here. Every header is checked against the caller's
// bounds before memory is allocated for pixels.
//
// Where this package differs from Pillow 13:
//   - It refuses by name what it does not read: lossless JPEG, TIFF with CMYK, YCbCr, JPEG, fax,
//     planes or fewer than 8 bits a grey, BMP with unusual masks, animations outside of their screen.
//   - It refuses a PNG whose compressed data has a wrong checksum. It never decompresses profiles and
//     texts that it does not need, so they cannot be bombs.
//   - JPEG has at most 100 scans.
//
// Without cgo JPEG is decoded by image/jpeg and WebP by golang.org/x/image/webp, which repeat chroma
// samples where libjpeg-turbo and libwebp interpolate them. TestWithoutCgo has the difference over
// the images of testdata: means and maxima of a sample, by format.
//
// The package must not open files, use the network, or scale images. Start reading at Decode.
package media
