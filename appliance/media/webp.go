package media

import (
	"encoding/binary"
	"time"
)

// readWebP reads the chunks of a RIFF container: the size of the canvas, the number of frames,
// metadata.
func readWebP(data []byte) (Info, error) {
	info := Info{Format: WebP}
	var meta metadata
	le := binary.LittleEndian
	end := min(int64(len(data)), int64(le.Uint32(data[4:]))+8)
	images := 0
	for at := int64(12); at+8 <= end; {
		name, n := string(data[at:at+4]), int64(le.Uint32(data[at+4:]))
		at += 8
		body := data[at:min(at+n, end)]
		switch name {
		case "VP8X":
			if len(body) < 10 {
				return info, endsEarly(WebP)
			}
			info.Width, info.Height = 1+int(le.Uint32(body[4:])&0xffffff), 1+int(le.Uint32(body[6:])>>8)
		case "VP8 ", "VP8L":
			images++
			if info.Width == 0 {
				if err := bitstreamSize(&info, name, body); err != nil {
					return info, err
				}
			}
		case "ANMF":
			info.Frames++
			if len(body) >= 16 {
				info.Duration += shown(time.Duration(le.Uint32(body[12:])&0xffffff) * time.Millisecond)
			}
		case "EXIF":
			if meta.exif == nil {
				meta.exif = body
			}
		case "XMP ":
			if meta.xmp == nil {
				meta.xmp = body
			}
		}
		at += n + n&1
	}
	if info.Width == 0 || info.Frames+images == 0 {
		return info, endsEarly(WebP)
	}
	info.Frames = max(info.Frames, 1)
	info.Orientation = meta.orientation()
	return info, nil
}

// bitstreamSize reads the size of an image without a VP8X chunk.
func bitstreamSize(info *Info, name string, body []byte) error {
	le := binary.LittleEndian
	switch {
	case len(body) < 10:
		return endsEarly(WebP)
	case name == "VP8 " && string(body[3:6]) == "\x9d\x01\x2a":
		info.Width, info.Height = int(le.Uint16(body[6:])&0x3fff), int(le.Uint16(body[8:])&0x3fff)
	case name == "VP8L" && body[0] == 0x2f:
		bits := le.Uint32(body[1:])
		info.Width, info.Height = 1+int(bits&0x3fff), 1+int(bits>>14&0x3fff)
	default:
		return refuse(Damaged, WebP, "its %s chunk does not begin with a frame", name)
	}
	return nil
}
