package workload

import (
	"bytes"
	"encoding/base64"
	"image/jpeg"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRandomImages checks numbers and sizes of images, that a decoder reads them, that the seed
// decides them, and that the prompts are those of Random.
func TestRandomImages(t *testing.T) {
	o := Random{Input: 8, Output: 3}
	images := Images{
		Items: 2, Range: 0.5, Limits: map[string]int{"image": 3, "video": 0},
		Buckets: []Bucket{{20, 30, 1, 3}, {16, 16, 1, 1}, {720, 1280, 16, 0}},
	}
	got, err := maker(400, 7).RandomImages(t.Context(), o, images)
	if err != nil {
		t.Fatal(err)
	}
	numbers, sizes, urls := map[int]int{}, map[[2]int]int{}, map[string]bool{}
	for _, q := range got {
		numbers[len(q.Images)]++
		for _, p := range q.Images {
			sizes[[2]int{p.Width, p.Height}]++
			url, err := p.URL()
			if err != nil {
				t.Fatal(err)
			}
			urls[url] = true
		}
	}
	all := sizes[[2]int{30, 20}] + sizes[[2]int{16, 16}]
	if len(numbers) != 3 || numbers[1] < 90 || numbers[2] < 90 || numbers[3] < 90 || len(sizes) != 2 || len(urls) != all {
		t.Errorf("numbers %v, sizes %v, %d different images", numbers, sizes, len(urls))
	}
	if share := float64(sizes[[2]int{30, 20}]) / float64(all); share < 0.68 || share > 0.82 {
		t.Errorf("%.2f of the images are 30 × 20, want 0.75", share)
	}
	p := got[0].Images[0]
	url, _ := p.URL()
	data, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(url, "data:image/jpeg;base64,"))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := jpeg.Decode(bytes.NewReader(data)); err != nil || m.Bounds().Dx() != p.Width || m.Bounds().Dy() != p.Height {
		t.Errorf("%v, want %d × %d: %v", m.Bounds(), p.Width, p.Height, err)
	}
	open := cmp.AllowUnexported(Image{})
	again, _ := maker(400, 7).RandomImages(t.Context(), o, images)
	other, _ := maker(400, 8).RandomImages(t.Context(), o, images)
	if !cmp.Equal(got, again, open) || cmp.Equal(got[0].Images, other[0].Images, open) {
		t.Error("the seed does not decide the images")
	}
	plain, _ := maker(400, 7).Random(t.Context(), o)
	for i := range plain {
		if plain[i].Prompt != got[i].Prompt || plain[i].Output != got[i].Output || plain[i].Tokens != got[i].Tokens {
			t.Fatalf("request %d: %+v, want %+v", i, got[i], plain[i])
		}
	}
}

func TestImagesRefused(t *testing.T) {
	limits, size := map[string]int{"image": 2}, []Bucket{{16, 16, 1, 1}}
	for want, o := range map[string]Images{
		"size (720, 1280, 16) with probability 0.1: it is a video, and only images are made": {Items: 1, Limits: limits, Buckets: []Bucket{{16, 16, 1, 1}, {720, 1280, 16, 0.1}}},
		"it is a sound":                                  {Items: 1, Limits: limits, Buckets: []Bucket{{0, 1, 5, 1}}},
		"give (height, width, 1)":                        {Items: 1, Limits: limits, Buckets: []Bucket{{16, 0, 1, 1}}},
		"with 1 to 16384 pixels":                         {Items: 1, Limits: limits, Buckets: []Bucket{{16, 16385, 1, 1}}},
		"probability of 0 or more":                       {Items: 1, Limits: limits, Buckets: []Bucket{{16, 16, 1, -1}}},
		"has a probability above 0":                      {Items: 1, Limits: limits, Buckets: []Bucket{{16, 16, 1, 0}}},
		"no limit of images":                             {Items: 1, Limits: map[string]int{"video": 1}, Buckets: size},
		"3 images a request or more, and the limit is 2": {Items: 3, Limits: limits, Buckets: size},
		"-1 images":                                      {Items: -1, Limits: limits, Buckets: size},
		"ratio from 0 to 1":                              {Items: 1, Range: 1.5, Limits: limits, Buckets: size},
	} {
		if _, err := maker(1, 0).RandomImages(t.Context(), Random{Input: 5, Output: 1}, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := maker(1, 0).RandomImages(t.Context(), Random{Input: 5, Output: 1}, Images{Limits: limits, Buckets: size}); err != nil {
		t.Errorf("no images: %v", err)
	}
}
