// Package released computes what a vLLM release would log for a prepared profile. It must not do
// the release's arithmetic: that is tools/compat; it translates the profile and the device.
// Start reading at Report.
package released

import (
	"errors"
	"strconv"
	"strings"

	"vapp.dev/appliance"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
	"vapp.dev/tools/compat"
)

// Report returns what release r would log for the prepared profile on its device, a GPU. Fields
// that the profile does not set have the defaults of that release. The error is a *schema.Error
// with the field that the release refuses.
func Report(p *appliance.Prepared, r compat.Release) (compat.Report, error) {
	d, ok := deviceOf(p.Plan.Facts)
	if !ok {
		return compat.Report{}, p.Profile.Reject("backend", "%s is a GPU's log: plan for one with --gpu", r)
	}
	report, err := compat.Make(compat.Inputs{Release: r, Config: p.Model.Config, Device: d, Request: requestOf(p.Profile)})
	var wrong *compat.Error
	switch {
	case err == nil:
		return report, nil
	case errors.As(err, &wrong) && !strings.HasPrefix(wrong.Field, "config."):
		return report, p.Profile.Reject(wrong.Field, "%s: %s", r, wrong.Msg)
	}
	return report, p.Profile.Reject("model.source", "%s: %v", r, err)
}

// deviceOf returns the facts of a GPU that vLLM reads; false where they are not a GPU's.
func deviceOf(f backend.Facts) (compat.Device, bool) {
	d := compat.Device{Name: f.Device, TotalBytes: f.TotalBytes, SMs: f.SMs}
	major, minor, ok := strings.Cut(f.Capability, ".")
	if !ok {
		return d, false
	}
	var errs [2]error
	d.Major, errs[0] = strconv.Atoi(major)
	d.Minor, errs[1] = strconv.Atoi(minor)
	return d, errors.Join(errs[:]...) == nil
}

// requestOf returns the arguments of vLLM's command line for a profile.
func requestOf(p *schema.Profile) compat.Request {
	r := compat.Request{
		Dtype: p.Model.Dtype, KVCacheDtype: p.Memory.KVCacheDtype, KVBytes: int64(p.Memory.KVCache),
		MaxModelLen: -1, TensorParallel: p.Parallel.Tensor, PipelineParallel: p.Parallel.Pipeline,
		PrefixCaching:  onOff(p, "scheduler.prefixCaching", p.Scheduler.PrefixCaching),
		ChunkedPrefill: onOff(p, "scheduler.chunkedPrefill", p.Scheduler.ChunkedPrefill),
		TextOnly:       p.Multimodal != nil && p.Multimodal.Limits == schema.MediaLimits{},
	}
	if p.MaxModelLen != schema.Auto {
		r.MaxModelLen = int(p.MaxModelLen)
	}
	if p.Quantization != "none" {
		r.Quantization = p.Quantization
	}
	for path, set := range map[string]func(){
		"memory.utilization":            func() { r.Utilization = p.Memory.Utilization },
		"scheduler.maxNumSeqs":          func() { r.MaxNumSeqs = p.Scheduler.MaxNumSeqs },
		"scheduler.maxNumBatchedTokens": func() { r.MaxNumBatchedTokens = p.Scheduler.MaxNumBatchedTokens },
		"memory.blockSize":              func() { r.BlockSize = p.Memory.BlockSize },
		"memory.swapSpace":              func() { r.SwapSpace = noneOr(int64(p.Memory.SwapSpace)) },
	} {
		if p.Says(path) {
			set()
		}
	}
	if m := p.Multimodal; m != nil && !r.TextOnly {
		r.NoImages, r.NoVideo = m.Limits.Image == 0, m.Limits.Video == 0
		if m.Image != nil {
			r.ImageTokens, r.MaxPixels = m.Image.Tokens, int64(m.Image.MaxPixels)
		}
	}
	if s := p.Speculative; s != nil {
		r.Speculative = compat.Speculative{Method: s.Method, Tokens: s.NumTokens}
	}
	if g := p.Cudagraph; g != nil {
		r.Cudagraph = compat.Cudagraph{EnforceEager: g.Mode == "none", Sizes: g.CaptureSizes}
		if p.Says("cudagraph.mode") && g.Mode != "none" {
			r.Cudagraph.Mode = g.Mode
		}
	}
	return r
}

// onOff returns "on" or "off" for a switch that the profile's file sets, else "".
func onOff(p *schema.Profile, path string, on bool) string {
	switch {
	case !p.Says(path):
		return ""
	case on:
		return "on"
	}
	return "off"
}

// noneOr maps 0 to -1, which means none: a zero field of compat.Request means not set.
func noneOr(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}
