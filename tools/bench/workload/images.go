package workload

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"slices"
)

// maxSide bounds the width and the height of an image, in pixels.
const maxSide = 1 << 14

// Bucket is a size that images are drawn with, in the order of vLLM's --random-mm-bucket-config.
type Bucket struct {
	Height, Width int // in pixels; height 0 is a sound
	Frames        int // 1 is an image, more is a video
	Weight        float64
}

// Images describes the images of random prompts.
type Images struct {
	// Items is the number of images of a request.
	Items int
	// Range r draws it from floor(Items(1-r)) to ceil(Items(1+r)).
	Range float64
	// Limits is the maximum number of items in a request by kind (image, video).
	Limits map[string]int
	// Buckets are the sizes; one with weight 0 is not drawn.
	Buckets []Bucket
}

// Image is an image of random pixels. It is made when it is needed, since a workload of images
// takes gigabytes.
type Image struct {
	Width, Height int
	seed, stream  uint64
}

// URL returns the image as the data: URL of a JPEG with quality 75 and 4:2:0 chroma, as Pillow
// writes by default.
func (p Image) URL() (string, error) {
	m := image.NewRGBA(image.Rect(0, 0, p.Width, p.Height))
	r := rand.New(rand.NewPCG(p.seed, p.stream))
	for i := 0; i < len(m.Pix); i += 4 {
		v := r.Uint32()
		m.Pix[i], m.Pix[i+1], m.Pix[i+2], m.Pix[i+3] = byte(v), byte(v>>8), byte(v>>16), 255
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 75}); err != nil {
		return "", err
	}
	return "data:image/jpeg;base64," + base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

// sizes checks o and returns the buckets with a weight, and the range of images in a request.
func (o Images) sizes() (sizes []Bucket, low, high int, err error) {
	if o.Items < 0 || o.Items > maxLength || !(o.Range >= 0 && o.Range <= 1) {
		return nil, 0, 0, fmt.Errorf("%d images a request with a range ratio of %v: give 0 or more, and a ratio from 0 to 1", o.Items, o.Range)
	}
	for _, b := range o.Buckets {
		name := fmt.Sprintf("size (%d, %d, %d) with probability %v", b.Height, b.Width, b.Frames, b.Weight)
		switch {
		case !(b.Weight >= 0) || math.IsInf(b.Weight, 1):
			return nil, 0, 0, fmt.Errorf("%s: give a probability of 0 or more", name)
		case b.Weight == 0:
			continue
		case b.Height == 0:
			return nil, 0, 0, fmt.Errorf("%s: it is a sound, and only images are made; give a height of 1 or more", name)
		case b.Frames > 1:
			return nil, 0, 0, fmt.Errorf("%s: it is a video, and only images are made; give 1 frame", name)
		case b.Frames < 1 || b.Height < 0 || b.Width < 1 || b.Height > maxSide || b.Width > maxSide:
			return nil, 0, 0, fmt.Errorf("%s: give (height, width, 1) with 1 to %d pixels each", name, maxSide)
		}
		sizes = append(sizes, b)
	}
	most, limited := o.Limits["image"]
	low, high = int(math.Floor(float64(o.Items)*(1-o.Range))), int(math.Ceil(float64(o.Items)*(1+o.Range)))
	switch {
	case len(sizes) == 0:
		return nil, 0, 0, fmt.Errorf("no size of an image has a probability above 0")
	case !limited || most < 0:
		return nil, 0, 0, fmt.Errorf("no limit of images in a request; give one such as {\"image\": %d}", max(o.Items, 1))
	case low > most:
		return nil, 0, 0, fmt.Errorf("%d images a request or more, and the limit is %d; raise it or ask for fewer", low, most)
	}
	return sizes, low, min(high, most), nil
}

// Check returns what is wrong with o.
func (o Images) Check() error {
	_, _, _, err := o.sizes()
	return err
}

// RandomImages makes prompts as Random does, each with images. Tokens counts the text alone.
func (m Maker) RandomImages(ctx context.Context, o Random, images Images) ([]Request, error) {
	sizes, low, high, err := images.sizes()
	if err != nil {
		return nil, err
	}
	out, err := m.Random(ctx, o)
	if err != nil {
		return nil, err
	}
	total, sums := 0.0, make([]float64, len(sizes)) // sums of the weights up to each size
	for i, b := range sizes {
		total += b.Weight
		sums[i] = total
	}
	r := generator(m.Seed, streamImages)
	for i := range out {
		for range between(r, low, high) {
			at, _ := slices.BinarySearch(sums, total*(1-r.Float64())) // in (0, total]
			b := sizes[min(at, len(sizes)-1)]
			out[i].Images = append(out[i].Images, Image{Width: b.Width, Height: b.Height, seed: r.Uint64(), stream: r.Uint64()})
		}
	}
	return out, nil
}
