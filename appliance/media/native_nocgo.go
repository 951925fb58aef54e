//go:build !cgo

package media

import "vapp.dev/engine/vision/rgb"

func decodeJPEG(data []byte, info Info) (*rgb.Image, error)       { return goJPEG(data, info) }
func (p *pngFile) unpackRows(int) ([]byte, error)                 { return nil, errNoRows }
func decodeWebP(data []byte, info Info, _ []int) ([]Frame, error) { return goWebP(data, info) }
