"""Record images.json.gz: what the image and video processors of transformers make of pictures.

    python record.py

It runs the PIL image processors of Gemma 4 and Qwen3.5 (Qwen2VLImageProcessorPil) and the video
processors (torchvision) on pictures.py. Files are small: values are SHA-256 digests of float32 and
int32 in little endian. Needs torch, torchvision, numpy, Pillow, transformers; versions are in the
file.
"""

import gzip
import hashlib
import json
import pathlib
import random
import types

import numpy as np
import PIL
import torch
import torchvision
import transformers
from PIL import Image
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil, get_aspect_ratio_preserving_size
from transformers.models.gemma4.processing_gemma4 import Gemma4Processor
from transformers.models.gemma4.video_processing_gemma4 import Gemma4VideoProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as video_resize
from transformers.video_utils import VideoMetadata
from transformers.vision_utils import get_vision_position_ids

from pictures import picture

HALF = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3, patch_size=16)
QWEN = dict(HALF, size=dict(shortest_edge=65536, longest_edge=16777216))
QWEN_VIDEO = dict(HALF, size=dict(shortest_edge=4096, longest_edge=25165824))

# Sizes of pictures: equal to their result, ratios, both orders of the passes, extremes.
GEMMA = [
    (1, 1, 70), (2, 1, 140), (1, 2, 280), (3, 3000, 280), (1, 3000, 280), (3000, 1, 560), (48, 48, 70), (96, 48, 1120), (640, 480, 70), (640, 480, 140),
    (640, 480, 280), (480, 640, 280), (912, 672, 280), (816, 768, 280), (1080, 2400, 280), (2400, 1080, 280), (1920, 1080, 560), (1080, 1920, 1120), (500, 501, 280),
    (501, 500, 140), (4000, 3000, 280), (2000, 1500, 1120), (1500, 2000, 70), (100, 1700, 140),
]
QWEN_IMAGES = [
    (1, 1, {}), (1, 200, {}), (200, 1, {}), (32, 32, {}), (256, 256, {}), (255, 257, {}), (640, 480, {}), (480, 640, {}), (1000, 700, {}), (700, 1400, {}),
    (1080, 2400, {"max_pixels": 1000000}), (4000, 3000, {"max_pixels": 786432}), (900, 1200, {"max_pixels": 200704, "min_pixels": 3136}), (64, 48, {"min_pixels": 262144}),
    (320, 200, {"size": {"shortest_edge": 1024, "longest_edge": 50000}}), (48, 16, {"min_pixels": 1, "max_pixels": 4096}),
]


def digest(a, dtype):
    return hashlib.sha256(np.ascontiguousarray(a, dtype=dtype).tobytes()).hexdigest()


def images():
    out = []
    for n, (width, height, budget) in enumerate(GEMMA):
        got = Gemma4ImageProcessorPil(max_soft_tokens=budget).preprocess(Image.fromarray(picture(width, height, n)))
        tokens = got["num_soft_tokens_per_image"][0]
        pixels, places = got["pixel_values"][0][: 9 * tokens], got["image_position_ids"][0][: 9 * tokens]
        assert pixels.dtype == np.float32 and (places >= 0).all() and (got["image_position_ids"][0][9 * tokens :] == -1).all()
        out.append(dict(model="gemma", width=width, height=height, seed=n, kwargs=dict(max_soft_tokens=budget), tokens=int(tokens),
                        across=int(places[-1, 0]) + 1, down=int(places[-1, 1]) + 1, pixels=digest(pixels, "<f4"), places=digest(places, "<i4")))
    for n, (width, height, kwargs) in enumerate(QWEN_IMAGES):
        got = Qwen2VLImageProcessorPil(**QWEN).preprocess(Image.fromarray(picture(width, height, n)), **kwargs)
        _, down, across = (int(v) for v in got["image_grid_thw"][0])
        assert got["pixel_values"].dtype == np.float32
        places = get_vision_position_ids(torch.tensor([[1, down, across]]), 2).flip(1)
        out.append(dict(model="qwen", width=width, height=height, seed=n, kwargs=kwargs, tokens=across * down // 4, across=across, down=down,
                        pixels=digest(got["pixel_values"], "<f4"), places=digest(places, "<i4")))
    return out


def sizes():
    """Rows of numbers: the input, then width and height after resizing, 0 where the processor refuses."""
    random.seed(24)
    out = dict(gemma=[], qwen=[], video=[])

    def grid(call):
        try:
            height, width = call()
            return [width, height]
        except ValueError:
            return [0, 0]

    for n in range(150):
        width, height = (random.choice([random.randint(1, 60), random.randint(1, 2000), random.randint(1, 9000)]) for _ in range(2))
        budget = random.choice([70, 140, 280, 560, 1120])
        out["gemma"].append([width, height, budget] + grid(lambda: get_aspect_ratio_preserving_size(height, width, 16, 9 * budget, 3)))
        least, most = random.choice([(65536, 16777216), (3136, 200704), (1, 1000), (1000000, 1100000)])
        out["qwen"].append([width, height, least, most] + grid(lambda: smart_resize(height, width, 32, least, most)))
        frames, cap = random.choice([1, 2, 3, 8, 31, 768]), random.choice([False, True])
        least, most = random.choice([(4096, 25165824), (131072, 786432)])
        pixels = max(min(768 * 1024, most // frames), int(least * 1.05)) * frames if cap else most
        out["video"].append([frames, width, height, least, most, int(cap)] + grid(lambda: video_resize(frames, height, width, 2, 32, least, pixels)))
    return out


def metadata(total, fps):
    return VideoMetadata(total_num_frames=total, fps=fps, width=64, height=64, duration=None, video_backend=None, frames_indices=None)


def sampled():
    out = []
    # The texts without the tokens of frames, whose ends become a bar.
    tokens = types.SimpleNamespace(boi_token="", eoi_token="|", video_token="", vision_start_token="", vision_end_token="|")
    gemma, qwen = Gemma4VideoProcessor(), Qwen3VLVideoProcessor(**QWEN_VIDEO)
    q = types.SimpleNamespace(**vars(tokens), video_processor=qwen)
    q._calculate_timestamps = types.MethodType(Qwen3VLProcessor._calculate_timestamps, q)
    for total, fps in [(32, 24), (33, 30), (64, 2), (100, 29.97), (2000, 25), (5000, None), (100000, 60), (7000, 1)]:
        meta = metadata(total, fps)
        meta.frames_indices = gemma.sample_frames(meta, num_frames=32)
        label = Gemma4Processor.replace_video_token(tokens, dict(num_soft_tokens_per_video=[0], video_metadata=[meta]), 0)
        out.append(dict(model="gemma", total=total, fps=fps or 0, indices=meta.frames_indices.tolist(), labels=label))
    for total, fps in [(2, 24), (3, 1), (4, 24), (9, 1), (100, 29.97), (2000, 25), (301, None), (100000, 60)]:
        meta = metadata(total, fps)
        meta.frames_indices = qwen.sample_frames(meta)
        indices = meta.frames_indices.tolist()
        grid = np.array([[(len(indices) + 1) // 2, 0, 0]])
        label = Qwen3VLProcessor.replace_video_token(q, dict(video_grid_thw=grid, video_metadata=[meta]), 0)
        if len(indices) > 64:
            indices, label = digest(indices, "<i4"), hashlib.sha256(label.encode()).hexdigest()
        out.append(dict(model="qwen", total=total, fps=fps or 0, indices=indices, labels=label))
    return out


def videos():
    """Bytes of resized frames in the order of patches, and pixel values of Gemma, whose positions are those of images."""
    out = []
    as_it_is = dict(do_rescale=False, do_normalize=False, do_sample_frames=False)
    gemma, qwen = Gemma4VideoProcessor(), Qwen3VLVideoProcessor(**QWEN_VIDEO)
    for model, processor, frames, width, height in [
        ("gemma", gemma, 2, 480, 288), ("gemma", gemma, 1, 640, 480), ("gemma", gemma, 2, 90, 900), ("gemma", gemma, 1, 1280, 719),
        ("qwen", qwen, 4, 96, 64), ("qwen", qwen, 3, 64, 128), ("qwen", qwen, 2, 250, 130), ("qwen", qwen, 5, 77, 333), ("qwen", qwen, 2, 20, 16),
    ]:
        clip = torch.from_numpy(np.stack([picture(width, height, n) for n in range(frames)])).permute(0, 3, 1, 2)
        case = dict(model=model, frames=frames, width=width, height=height)
        got = processor.preprocess([clip], **as_it_is)
        patches = got["pixel_values_videos"]
        assert patches.dtype == torch.uint8
        if model == "gemma":
            count = 9 * got["num_soft_tokens_per_video"][0]
            values = processor.preprocess([clip], do_sample_frames=False)["pixel_values_videos"][:, :count]
            case["pixels"], patches = digest(values.numpy(), "<f4"), patches[:, :count]
        out.append(case | dict(bytes=digest(patches.numpy(), "u1")))
    return out


def resizes():
    """Pillow's bytes, for sizes that no processor asks for."""
    out = []
    for n, (width, height, across, down) in enumerate([
        (1, 1, 3, 5), (3, 2, 7, 5), (7, 5, 3, 2), (2, 9, 1, 4), (1, 86, 1389, 7), (17, 5, 17, 9), (17, 5, 9, 5), (5000, 3, 48, 48), (3, 5000, 48, 48), (300, 200, 300, 200),
        (301, 199, 40, 150), (301, 199, 250, 20), (299, 201, 298, 200), (64, 64, 63, 61), (64, 64, 63, 62), (1001, 999, 8, 8), (33, 47, 555, 333),
    ]):
        got = Image.fromarray(picture(width, height, n)).resize((across, down), Image.Resampling.BICUBIC)
        out.append([width, height, across, down, n, hashlib.sha256(got.tobytes()).hexdigest()])
    return out


def main():
    versions = {m.__name__: m.__version__ for m in (PIL, np, torch, torchvision, transformers)}
    parts = dict(versions=[versions], images=images(), videos=videos(), sampled=sampled(), resizes=resizes())
    parts |= {"sizes_" + name: rows for name, rows in sizes().items()}
    dense = lambda v: json.dumps(v, separators=(",", ":"))
    # A line has one case, or ten rows of numbers.
    step = lambda rows: 10 if isinstance(rows[0], list) and len(rows) > 20 else 1
    text = ",\n".join(f'"{name}":[\n' + ",\n".join(",".join(map(dense, rows[i : i + step(rows)])) for i in range(0, len(rows), step(rows))) + "\n]" for name, rows in parts.items())
    data = gzip.compress(("{" + text + "}\n").encode(), mtime=0)
    pathlib.Path(__file__).with_name("images.json.gz").write_bytes(data)


if __name__ == "__main__":
    main()
