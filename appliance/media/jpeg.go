package media

import (
	"bytes"
	"encoding/binary"
)

// readJPEG reads the markers up to the first scan, as Pillow does.
func readJPEG(data []byte) (Info, error) {
	info := Info{Format: JPEG, Frames: 1}
	var meta metadata
	for at := 2; ; {
		marker, body, next, err := nextMarker(data, at)
		if err != nil {
			return info, err
		}
		at = next
		const (
			exif = exifPrefix
			xmp  = "http://ns.adobe.com/xap/1.0/\x00"
		)
		switch {
		case marker == 0xda:
			if info.Width == 0 || info.Height == 0 {
				return info, refuse(Damaged, JPEG, "its first scan has no frame header or one without pixels")
			}
			info.Orientation = meta.orientation()
			return info, nil
		case marker == 0xe1 && bytes.HasPrefix(body, []byte(exif)):
			if meta.exif != nil {
				body = body[len(exif):]
			}
			meta.exif = append(meta.exif, body...)
		case marker == 0xe1 && bytes.HasPrefix(body, []byte(xmp)):
			meta.xmp = body[len(xmp):]
		case frameNames[marker] != "":
			if err := frameHeader(&info, marker, body); err != nil {
				return info, err
			}
		}
	}
}

// frameNames has the kinds of frames by their marker; libjpeg decodes those without a word here.
var frameNames = map[byte]string{
	0xc0: "baseline", 0xc1: "extended", 0xc2: "progressive", 0xc9: "arithmetic", 0xca: "progressive arithmetic",
	0xc3: "lossless", 0xc5: "differential", 0xc6: "differential", 0xc7: "differential lossless", 0xcb: "lossless arithmetic",
	0xcd: "differential", 0xce: "differential", 0xcf: "differential lossless", 0xde: "hierarchical",
}

func frameHeader(info *Info, marker byte, body []byte) error {
	switch marker {
	case 0xc0, 0xc1, 0xc2, 0xc9, 0xca:
	default:
		return refuse(Unsupported, JPEG, "it is %s; baseline and progressive JPEG is read", frameNames[marker])
	}
	if len(body) < 6 {
		return refuse(Damaged, JPEG, "its frame header has %d bytes", len(body))
	}
	if body[0] != 8 {
		return refuse(Unsupported, JPEG, "it has %d bits a sample; 8 are read", body[0])
	}
	if n := body[5]; n != 1 && n != 3 && n != 4 {
		return refuse(Unsupported, JPEG, "it has %d components; 1, 3 and 4 are read", n)
	}
	info.Height, info.Width = int(binary.BigEndian.Uint16(body[1:])), int(binary.BigEndian.Uint16(body[3:]))
	return nil
}

// nextMarker returns the first marker at or after position at, the bytes of its segment, and the
// position behind it.
func nextMarker(data []byte, at int) (marker byte, body []byte, next int, err error) {
	for {
		skip := bytes.IndexByte(data[min(at, len(data)):], 0xff)
		if skip < 0 {
			return 0, nil, 0, endsEarly(JPEG)
		}
		at += skip + 1
		for at < len(data) && data[at] == 0xff {
			at++
		}
		if at >= len(data) {
			return 0, nil, 0, endsEarly(JPEG)
		}
		marker = data[at]
		at++
		switch {
		case marker == 0, marker >= 0xd0 && marker <= 0xd9, marker == 0xc8, marker >= 0xf0 && marker <= 0xfd:
			continue // these have no segment
		case marker < 0xc0:
			return 0, nil, 0, refuse(Damaged, JPEG, "it has the unknown marker 0x%02x", marker)
		}
		if at+2 > len(data) {
			return 0, nil, 0, endsEarly(JPEG)
		}
		end := at + max(2, int(binary.BigEndian.Uint16(data[at:])))
		if end > len(data) {
			return 0, nil, 0, endsEarly(JPEG)
		}
		return marker, data[at+2 : end], end, nil
	}
}
