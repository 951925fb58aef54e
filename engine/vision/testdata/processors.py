"""Record processors.json: the processor files of Gemma 4 and Qwen3.5, and what transformers makes of them.

    python processors.py

The published files are not in transformers. PUBLISHED has their fields as they are quoted where the
models are used: the sections of Gemma 4's processor_config.json, and Qwen3.5's
preprocessor_config.json and video_preprocessor_config.json. Of each image processor the file also
has all fields that the class has after it was loaded with the published ones, so that a default that
differs from vapp's shows. Gemma 4's are the class's own defaults; the script checks that. Needs
transformers and Pillow; the version is in the file. Video processors need torchvision and are not
instantiated.
"""

import json
import pathlib

import transformers
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

BYTE = 0.00392156862745098
GEMMA = {
    "do_convert_rgb": True, "do_rescale": True, "do_resize": True, "image_mean": [0.0] * 3, "image_std": [1.0] * 3,
    "patch_size": 16, "pooling_kernel_size": 3, "resample": 3, "rescale_factor": BYTE,
}
QWEN = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "merge_size": 2, "patch_size": 16, "temporal_patch_size": 2, "processor_class": "Qwen3VLProcessor"}
PUBLISHED = {
    "gemma": {"processor_config.json": {
        "image_processor": GEMMA | {"do_normalize": False, "image_processor_type": "Gemma4ImageProcessor", "image_seq_length": 280, "max_soft_tokens": 280},
        "image_seq_length": 280,
        "processor_class": "Gemma4Processor",
        "video_processor": GEMMA | {
            "do_normalize": True, "do_sample_frames": True, "max_soft_tokens": 70, "num_frames": 32, "return_metadata": False,
            "video_processor_type": "Gemma4VideoProcessor",
        },
    }},
    "qwen": {
        "preprocessor_config.json": QWEN | {"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "image_processor_type": "Qwen2VLImageProcessorFast"},
        "video_preprocessor_config.json": QWEN | {"size": {"longest_edge": 25165824, "shortest_edge": 4096}, "video_processor_type": "Qwen3VLVideoProcessor"},
    },
}


def fields(processor):
    return json.loads(processor.to_json_string())


def main():
    gemma, qwen = PUBLISHED["gemma"]["processor_config.json"]["image_processor"], PUBLISHED["qwen"]["preprocessor_config.json"]
    drop = ("image_processor_type", "processor_class", "image_seq_length")
    loaded = {
        "gemma": fields(Gemma4ImageProcessorPil(**{k: v for k, v in gemma.items() if k not in drop})),
        "qwen": fields(Qwen2VLImageProcessorPil(**{k: v for k, v in qwen.items() if k not in drop})),
    }
    if loaded["gemma"] != fields(Gemma4ImageProcessorPil()):
        raise SystemExit("Gemma 4's published fields are not the class's defaults")
    out = {"transformers": transformers.__version__, "published": PUBLISHED, "loaded": loaded}
    pathlib.Path(__file__).with_name("processors.json").write_text(json.dumps(out, sort_keys=True, separators=(",", ":")) + "\n")


main()
