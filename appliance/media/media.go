package media

import (
	"bytes"
	"time"

	"vapp.dev/engine/vision/rgb"
	"vapp.dev/filekind"
)

// Format is the name of a file format, as Pillow writes it.
type Format string

// The formats that are read.
const (
	PNG  Format = "PNG"
	JPEG Format = "JPEG"
	WebP Format = "WEBP"
	GIF  Format = "GIF"
	BMP  Format = "BMP"
	TIFF Format = "TIFF"
)

// MaxPixels is the size that Pillow refuses to open, in pixels.
const MaxPixels = 178956970

// maxScans is the most scans that a JPEG may have. Encoders write at most about 20; a scan of a few
// bytes takes the time of the whole image.
const maxScans = 100

// maxFrames is the most frames that an animation may have.
const maxFrames = 1 << 16

// Info is what the header of an image says.
type Info struct {
	Format        Format
	Width, Height int // of the stored pixels
	Frames        int // 1 for a still image
	// Duration is that of an animation. As in FFmpeg, frames of less than 20 ms count as 100 ms.
	Duration    time.Duration
	Orientation rgb.Orientation
}

// Rate returns the frames a second of an animation, 0 for a still image.
func (i Info) Rate() float64 {
	if i.Frames < 2 || i.Duration <= 0 {
		return 0
	}
	return float64(i.Frames) / i.Duration.Seconds()
}

// shown returns the time that a frame counts in Info.Duration.
func shown(d time.Duration) time.Duration {
	if d < 20*time.Millisecond {
		return 100 * time.Millisecond
	}
	return d
}

// Size returns the size of the decoded image, which is turned upright.
func (i Info) Size() (width, height int) { return i.Orientation.Size(i.Width, i.Height) }

// Bounds are limits that an image is checked against before memory is allocated for its pixels.
type Bounds struct {
	// Pixels is the most pixels of an image or of a frame; 0: MaxPixels.
	Pixels int64
	// Animation is the most pixels that Frames decodes, over all frames up to the last one that it
	// returns; 0: Pixels.
	Animation int64
}

func (b Bounds) pixels() int64 {
	if b.Pixels > 0 {
		return b.Pixels
	}
	return MaxPixels
}

func (b Bounds) animation() int64 {
	if b.Animation > 0 {
		return b.Animation
	}
	return b.pixels()
}

// check returns an error for a header whose pixels exceed the bounds.
func (b Bounds) check(i Info) error {
	if i.Width <= 0 || i.Height <= 0 {
		return refuse(Damaged, i.Format, "it has no pixels: %d × %d", i.Width, i.Height)
	}
	if int64(i.Width) > b.pixels()/int64(i.Height) {
		return refuse(TooLarge, i.Format, "%d × %d pixels are more than the limit of %d", i.Width, i.Height, b.pixels())
	}
	return nil
}

// formatOf returns the format of data by its first bytes, "" for none.
func formatOf(data []byte) Format {
	has := func(s string) bool { return bytes.HasPrefix(data, []byte(s)) }
	switch {
	case has(pngMagic):
		return PNG
	case has("\xff\xd8\xff"):
		return JPEG
	case has("RIFF") && len(data) >= 16 && string(data[8:12]) == "WEBP":
		return WebP
	case has("GIF87a"), has("GIF89a"):
		return GIF
	case has("BM"):
		return BMP
	case has("II\x2a\x00"), has("MM\x00\x2a"), has("II\x2b\x00"), has("MM\x00\x2b"):
		return TIFF
	}
	return ""
}

// others are formats that are not read, by the bytes at a position.
var others = []struct {
	at          int
	magic, name string
}{
	{4, "ftypavif", "AVIF"}, {4, "ftypavis", "AVIF"}, {4, "ftyphei", "HEIC"}, {4, "ftypmif1", "HEIF"}, {4, "ftyp", "a video (MP4)"},
	{4, "jP  \r\n", "JPEG 2000"}, {0, "\xff\x4f\xff\x51", "JPEG 2000"}, {0, "\xff\x0a", "JPEG XL"}, {4, "JXL \r\n", "JPEG XL"},
	{8, "AVI ", "a video (AVI)"}, {0, "FLV\x01", "a video (FLV)"}, {0, "\x00\x00\x01\xba", "a video (MPEG)"}, {0, "OggS", "a video (Ogg)"},
	{0, "\x00\x00\x01\x00", "an icon (ICO)"}, {0, "8BPS", "PSD"}, {0, "qoif", "QOI"}, {0, "\x1a\x45\xdf\xa3", "a video (Matroska or WebM)"},
}

// Header returns what the header of data says. It decodes no pixels and allocates little.
func Header(data []byte) (Info, error) {
	switch f := formatOf(data); f {
	case PNG:
		p, err := readPNG(data)
		return p.Info, err
	case JPEG:
		return readJPEG(data)
	case WebP:
		return readWebP(data)
	case GIF:
		g, err := readGIF(data)
		return g.Info, err
	case BMP:
		p, err := readBMP(data)
		return p.Info, err
	case TIFF:
		t, err := readTIFF(data)
		return t.Info, err
	}
	return Info{}, unread(data, "PNG, JPEG, WebP, GIF, BMP and TIFF")
}

// Animation is Header for a video: it refuses formats without frames.
func Animation(data []byte) (Info, error) {
	switch f := formatOf(data); f {
	case GIF, WebP:
		return Header(data)
	case "":
		return Info{}, unread(data, "GIF and WebP")
	default:
		return Info{}, refuse(Unsupported, "", "it is a %s image; GIF and WebP are read", f)
	}
}

// unread refuses data of another format than those of the text read.
func unread(data []byte, read string) *Error {
	for _, o := range others {
		if len(data) > o.at && bytes.HasPrefix(data[o.at:], []byte(o.magic)) {
			return refuse(Unsupported, "", "it is %s; %s are read", o.name, read)
		}
	}
	kind := filekind.Of(data[:min(len(data), filekind.HeadBytes)])
	return refuse(NotImage, "", "the data %s; %s are read", kind.Begins(), read)
}

// Decode returns the image in data, the first frame of an animation, turned upright. Its errors are
// of type *Error.
func Decode(data []byte, b Bounds) (*rgb.Image, error) {
	f, err := Frames(data, b, []int{0})
	if err != nil {
		return nil, err
	}
	return f[0].Image, nil
}

// Frame is a frame of an animation.
type Frame struct {
	Image *rgb.Image
	Start time.Duration // from the start of the animation
}

// Frames returns the frames of a GIF or of a WebP with those indexes, which rise from 0 on and are
// below Info.Frames. A still image has one frame. Its errors are of type *Error.
func Frames(data []byte, b Bounds, picks []int) ([]Frame, error) {
	var frames []Frame
	info, err := Header(data)
	if err != nil {
		return nil, err
	}
	if err := b.check(info); err != nil {
		return nil, err
	}
	if info.Frames > maxFrames {
		return nil, refuse(TooLarge, info.Format, "it has more than %d frames", maxFrames)
	}
	if n := int64(picks[len(picks)-1]) + 1; n > 1 && int64(info.Width)*int64(info.Height) > b.animation()/n {
		return nil, refuse(TooLarge, info.Format, "%d frames of %d × %d pixels are more than the limit of %d pixels",
			n, info.Width, info.Height, b.animation())
	}
	switch info.Format {
	case WebP:
		frames, err = decodeWebP(data, info, picks)
	case GIF:
		frames, err = decodeGIF(data, picks)
	default:
		var m *rgb.Image
		m, err = decodeStill(data, info)
		frames = []Frame{{Image: m}}
	}
	if err != nil {
		return nil, err
	}
	for i := range frames {
		frames[i].Image = frames[i].Image.Upright(info.Orientation)
	}
	return frames, nil
}

func decodeStill(data []byte, info Info) (*rgb.Image, error) {
	switch info.Format {
	case PNG:
		return decodePNG(data)
	case JPEG:
		return decodeJPEG(data, info)
	case BMP:
		return decodeBMP(data)
	}
	return decodeTIFF(data)
}
