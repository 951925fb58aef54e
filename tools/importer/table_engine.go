package importer

const otherDevice = no + "vapp runs on CUDA devices and CPUs"

// devices maps vLLM's device names to backends.
var devices = map[string]string{
	"auto": "auto", "cuda": "cuda", "cpu": "cpu",
	"neuron": otherDevice, "openvino": otherDevice, "tpu": otherDevice, "xpu": otherDevice, "hpu": otherDevice, "rocm": otherDevice,
}
