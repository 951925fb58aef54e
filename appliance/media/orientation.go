package media

import (
	"bytes"
	"encoding/binary"
	"regexp"

	"vapp.dev/engine/vision/rgb"
)

// metadata is what a file says about its orientation.
type metadata struct {
	exif []byte // a TIFF header with its directory, perhaps behind "Exif\0\0"
	xmp  []byte
	// texts is the number of compressed texts of a PNG that were read.
	texts int
}

var xmpOrientation = regexp.MustCompile(`tiff:Orientation(?:="|>)([0-9])`)

// orientation returns the orientation as Pillow's exif_transpose finds it: of the EXIF tag, and
// without one of the XMP packet.
func (m metadata) orientation() rgb.Orientation {
	if len(m.exif) > 0 {
		value, found, ok := exifOrientation(m.exif)
		if found || !ok {
			return value
		}
	}
	if s := xmpOrientation.FindSubmatch(m.xmp); s != nil {
		return rgb.Orientation(s[1][0] - '0')
	}
	return 1
}

const (
	exifPrefix     = "Exif\x00\x00"
	tagOrientation = 274
	typeShort      = 3
	typeLong       = 4
)

// exifOrientation returns the tag's value. found: the first directory has the tag; ok: the data has
// the header of a TIFF file.
func exifOrientation(b []byte) (value rgb.Orientation, found, ok bool) {
	for range 2 {
		b = bytes.TrimPrefix(b, []byte(exifPrefix))
	}
	if len(b) == 0 {
		return 1, false, true
	}
	order, start, ok := tiffHeader(b)
	if !ok {
		return 1, false, false
	}
	value = 1
	for _, e := range tiffEntries(b, order, start) {
		if order.Uint16(e) == tagOrientation {
			value, found = orientationOf(e, order), true
		}
	}
	return value, found, true
}

// orientationOf returns the orientation in an entry of a directory: one short or long number.
func orientationOf(e []byte, order binary.ByteOrder) rgb.Orientation {
	v := uint32(0)
	switch {
	case order.Uint32(e[4:]) != 1:
	case order.Uint16(e[2:]) == typeShort:
		v = uint32(order.Uint16(e[8:]))
	case order.Uint16(e[2:]) == typeLong:
		v = order.Uint32(e[8:])
	}
	if v < 1 || v > 8 {
		return 1
	}
	return rgb.Orientation(v)
}

// tiffHeader returns the byte order of a TIFF file and where its first directory is.
func tiffHeader(b []byte) (order binary.ByteOrder, start uint32, ok bool) {
	if len(b) < 8 {
		return nil, 0, false
	}
	switch string(b[:2]) {
	case "II":
		order = binary.LittleEndian
	case "MM":
		order = binary.BigEndian
	default:
		return nil, 0, false
	}
	return order, order.Uint32(b[4:]), order.Uint16(b[2:]) == 42
}

// tiffEntries returns the entries of the directory at start, 12 bytes each: those that the data
// holds.
func tiffEntries(b []byte, order binary.ByteOrder, start uint32) (entries [][]byte) {
	const entry = 12
	if int64(start)+2 > int64(len(b)) {
		return nil
	}
	n := int(order.Uint16(b[start:]))
	b = b[start+2:]
	for ; n > 0 && len(b) >= entry; n-- {
		entries = append(entries, b[:entry])
		b = b[entry:]
	}
	return entries
}
