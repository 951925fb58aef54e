package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
)

// loadProgress shows the progress of loading weights and capturing graphs: a bar on a terminal,
// elsewhere lines.
func loadProgress(f *os.File) func(engine.Progress) {
	return loadingOf(progress(f, "Loading weights"), progress(f, "Capturing CUDA graphs"))
}

// loadingOf passes the progress of a load to weights or to graphs.
func loadingOf(weights, graphs func(engine.Progress)) func(engine.Progress) {
	return func(p engine.Progress) {
		if p.Capturing {
			graphs(p)
			return
		}
		weights(p)
	}
}

// hashProgress shows the progress of hashing files.
func hashProgress(f *os.File) func(engine.Progress) { return progress(f, "Hashing files") }

// drawable reports whether f is a terminal with a known width, on which a bar can be drawn.
func drawable(f *os.File) bool {
	wide, _, err := term.GetSize(int(f.Fd()))
	return err == nil && wide > 0
}

func progress(f *os.File, what string) func(engine.Progress) {
	if drawable(f) {
		return progressBar(f, what)
	}
	return progressLines(f, what)
}

// progressBar creates the bar with the first report and ends it with the last.
func progressBar(f *os.File, what string) func(engine.Progress) {
	var once sync.Once
	var bars *mpb.Progress
	var bar *mpb.Bar
	return func(p engine.Progress) {
		once.Do(func() {
			bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(60), mpb.WithRefreshRate(100*time.Millisecond))
			bar = bars.AddBar(p.Total,
				mpb.PrependDecorators(decor.Name(what+" ")),
				mpb.AppendDecorators(counters(p), decor.Percentage(decor.WCSyncSpace)))
		})
		bar.SetCurrent(p.Done)
		if p.Done >= p.Total {
			bar.SetTotal(p.Total, true)
			bars.Wait()
		}
	}
}

// counters shows bytes, or steps while graphs are captured.
func counters(p engine.Progress) decor.Decorator {
	if p.Capturing {
		return decor.CountersNoUnit("%d / %d")
	}
	return decor.CountersKibiByte("% .1f / % .1f")
}

// betweenLines is the least time between two lines of progress, apart from the last line.
const betweenLines = 2 * time.Second

// progressLines writes a line for a new tenth, unless the line before it is younger than
// betweenLines, and always the last line.
func progressLines(f io.Writer, what string) func(engine.Progress) {
	return sparsely(time.Now, func(p engine.Progress, percent int64) {
		if p.Capturing {
			fmt.Fprintf(f, "%s: %3d%% (%d of %d)\n", what, percent, p.Done, p.Total)
			return
		}
		fmt.Fprintf(f, "%s: %3d%% (%s of %s)\n", what, percent, plan.Size(p.Done), plan.Size(p.Total))
	})
}

// progressRecords is progressLines as records of a log.
func progressRecords(log *slog.Logger, what string) func(engine.Progress) {
	return sparsely(time.Now, func(p engine.Progress, percent int64) {
		log.Info(what, "percent", percent, "done", p.Done, "total", p.Total)
	})
}

// sparsely calls show with the percentage of a new tenth, not sooner than betweenLines after the
// call before, and with the end.
func sparsely(now func() time.Time, show func(p engine.Progress, percent int64)) func(engine.Progress) {
	shown, at := int64(-1), time.Time{}
	return func(p engine.Progress) {
		tenth := int64(10)
		if p.Total > 0 {
			tenth = p.Done * 10 / p.Total
		}
		if t := now(); tenth != shown && (tenth == 10 || t.Sub(at) >= betweenLines) {
			shown, at = tenth, t
			show(p, tenth*10)
		}
	}
}
