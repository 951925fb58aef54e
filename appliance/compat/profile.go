package compat

import (
	"errors"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/schema"
)

// ForProfile returns what release r would log for a profile whose model has the
// given config, on the GPU that f describes. Fields that the profile does not set
// take the release's own defaults. The error is a *schema.Error with the field
// that the release refuses.
func ForProfile(p *schema.Profile, config checkpoint.Config, f backend.Facts, r Release) (Report, error) {
	d, ok := deviceOf(f)
	if !ok {
		return Report{}, p.Reject("backend", "%s is a GPU's log: plan for one with --gpu", r)
	}
	report, err := Make(Inputs{Release: r, Config: config, Device: d, Request: requestOf(p)})
	var wrong *Error
	switch {
	case err == nil:
		return report, nil
	case errors.As(err, &wrong) && !strings.HasPrefix(wrong.Field, "config."):
		return report, p.Reject(wrong.Field, "%s: %s", r, wrong.Msg)
	}
	return report, p.Reject("model.source", "%s: %v", r, err)
}

// deviceOf returns the GPU with the attributes that vLLM reads. It returns false
// for a device without a compute capability.
func deviceOf(f backend.Facts) (Device, bool) {
	d := Device{Name: f.Device, TotalBytes: f.TotalBytes, SMs: f.SMs}
	major, minor, ok := strings.Cut(f.Capability, ".")
	if !ok {
		return d, false
	}
	var errs [2]error
	d.Major, errs[0] = strconv.Atoi(major)
	d.Minor, errs[1] = strconv.Atoi(minor)
	return d, errors.Join(errs[:]...) == nil
}

// requestOf returns the options of vLLM's command line that match a profile.
func requestOf(p *schema.Profile) Request {
	r := Request{
		Dtype: p.Model.Dtype, KVCacheDtype: p.Memory.KVCacheDtype, Utilization: p.Memory.Utilization, KVBytes: int64(p.Memory.KVCache),
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
		"scheduler.maxNumSeqs":          func() { r.MaxNumSeqs = p.Scheduler.MaxNumSeqs },
		"scheduler.maxNumBatchedTokens": func() { r.MaxNumBatchedTokens = p.Scheduler.MaxNumBatchedTokens },
		"memory.blockSize":              func() { r.BlockSize = p.Memory.BlockSize },
		"memory.swapSpace":              func() { r.SwapSpace = noneOr(int64(p.Memory.SwapSpace)) },
	} {
		if p.Says(path) {
			set()
		}
	}
	if s := p.Speculative; s != nil {
		r.Speculative = Speculative{Method: s.Method, Tokens: s.NumTokens}
	}
	if g := p.Cudagraph; g != nil {
		r.Cudagraph = Cudagraph{EnforceEager: g.Mode == "none", Sizes: g.CaptureSizes}
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

// noneOr returns −1 for a size of 0, since 0 stands for a field that is not set.
func noneOr(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}
