//go:build cgo && linux

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/mpi"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/engine/ranks"
	"vapp.dev/kernels"
)

// mpiFolder is the variable of the processes that mpirun starts: a folder for rank 0's addresses and for its tokens.
const mpiFolder = "VAPP_TEST_MPI_FOLDER"

// rankedImages are what TestImagesRanksMPI runs: tensor parallel ranks, and stages of which the last one has a head.
var rankedImages = []struct {
	seeing
	places  ranks.Places
	propose func(*toy)
}{
	{towerSeeing, ranks.Places{Tensor: 2, Pipeline: 1}, func(*toy) {}},
	{headSeeing, ranks.Places{Tensor: 1, Pipeline: 2}, head(2)},
}

// TestImagesRanksMPI sends requests with images to two ranks that are processes under mpirun: they give the tokens of
// one rank.
func TestImagesRanksMPI(t *testing.T) {
	if folder := os.Getenv(mpiFolder); folder != "" {
		imagesOfProcess(t, folder)
		return
	}
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	folder := t.TempDir()
	var plain [][][]int32
	for i, c := range rankedImages {
		plain = append(plain, c.few(t, imagesOnProcess(t, i, c.folder(t, folder)).open(t)))
	}
	c := enginetest.MPIRun(t, 2, 5*time.Minute, []string{mpiFolder + "=" + folder}, "-test.run=^TestImagesRanksMPI$")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got [][][]int32
	b, err := os.ReadFile(filepath.Join(folder, "tokens"))
	if err = errors.Join(err, json.Unmarshal(b, &got)); err != nil {
		t.Fatal(err)
	}
	for i, c := range rankedImages {
		if !slices.EqualFunc(got[i], plain[i], slices.Equal[[]int32]) {
			t.Errorf("%s: %v, on one rank %v", c.name, got[i], plain[i])
		}
	}
}

// imagesOnProcess returns a toy of rankedImages, whose checkpoint is in a folder.
func imagesOnProcess(t *testing.T, i int, dir string) *toy {
	t.Helper()
	f := rankedImages[i].seeing
	return &toy{dir: dir, on: cpu.Opener{}, slabs: 16, build: models.Build{Vision: true, Dtype: kernels.F32}, opts: engine.Options{
		MaxModelLen: 64, MaxNumSeqs: 2, MaxNumBatchedTokens: 16, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true,
		Backend: backend.Settings{Variant: variantsHere(t)[0], Threads: 1}, Items: engine.ItemOptions{Patches: 6 * f.side * f.side},
	}}
}

// imagesOfProcess is what one of the ranks runs. Rank 0 writes its tokens to the folder.
func imagesOfProcess(t *testing.T, folder string) {
	w, err := mpi.Open(mpi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all [][][]int32
	for i, c := range rankedImages {
		g, err := w.Group(c.places.Tensor, c.places.Pipeline)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(folder, c.name)
		if c.whole {
			dir = c.folder(t, "")
		}
		y := imagesOnProcess(t, i, dir)
		c.propose(y)
		config, file := y.rank(t, w.Rank(), g), filepath.Join(folder, c.name+".address")
		if w.Rank() > 0 {
			err = follow(addressIn(t, file), w.Rank(), c.places, config)
		} else {
			config.Ranks = &engine.Ranks{Leader: gathered(t, file), Places: c.places}
			var e *engine.Engine
			if e, err = engine.Open(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			all = append(all, c.few(t, e))
			err = e.Close()
		}
		if err = errors.Join(err, config.Model.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if w.Rank() == 0 {
		b, err := json.Marshal(all)
		if err = errors.Join(err, os.WriteFile(filepath.Join(folder, "tokens"), b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// gathered returns the leader of two ranks, whose address it writes to a file.
func gathered(t *testing.T, file string) *ranks.Leader {
	t.Helper()
	l, err := ranks.Listen("127.0.0.1:0", channel, ranks.Member{World: 2, Host: "here"})
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(file+".new", []byte(l.Addr().String()), 0o600)
	if err = errors.Join(err, os.Rename(file+".new", file)); err == nil {
		err = l.Gather(context.Background(), ranks.Decided{}, func(int) (string, error) { return "the plan", nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// addressIn waits until rank 0 has written its address.
func addressIn(t *testing.T, file string) string {
	t.Helper()
	for {
		if b, err := os.ReadFile(file); err == nil {
			return string(b)
		}
		select {
		case <-t.Context().Done():
			t.Fatal("rank 0 has written no address")
		case <-time.After(5 * time.Millisecond):
		}
	}
}
