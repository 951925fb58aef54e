"""Record the reference logits of prompts with images and videos, on small random checkpoints with a vision tower.

    python record_media.py [NAME...]

Rewrites the directories of tiny_media.py and media/NAME.CASE.safetensors: golden files as README.md describes them, with
more tensors about the images.
"""

import glob
import os
import sys

import torch
from transformers.vision_utils import get_vision_position_ids

import golden
import tiny_media

HERE = os.path.dirname(os.path.abspath(__file__))
EVERY = 8  # of the sampled columns of golden.py, every 8th is kept, of a video every 32nd


def places(across, down):
    """Column and row of each patch, row by row."""
    return torch.tensor([[x, y] for y in range(down) for x in range(across)])


def gemma4_inputs(config, ids, items):
    """Arguments of a forward pass: images padded to the largest one, as the processor pads them."""
    vision = config.vision_config
    most = vision.default_output_length * vision.pooling_kernel_size**2
    pixels = torch.zeros(len(items), most, 3 * vision.patch_size**2)
    where = torch.full((len(items), most, 2), -1)
    for i, (_, _, across, down, seed) in enumerate(items):
        n = across * down
        pixels[i, :n], where[i, :n] = tiny_media.pixels(seed, n, pixels.shape[2]), places(across, down)
    inputs, frames = dict(pixel_values=pixels, image_position_ids=where), videos(ids, items)
    if any(frames):
        inputs |= dict(pixel_values_videos=pixels[frames], video_position_ids=where[frames], num_frames_per_video=torch.tensor([sum(frames)]))
        inputs |= dict(pixel_values=pixels[~frames], image_position_ids=where[~frames])
    return inputs, [places(a, d) for _, _, a, d, _ in items]


def qwen35_inputs(config, ids, items):
    """Arguments of a forward pass: the patches of all images one after another, each in squares of merged patches."""
    vision = config.vision_config
    cols = 3 * vision.temporal_patch_size * vision.patch_size**2
    grid = torch.tensor([[1, down, across] for _, _, across, down, _ in items])
    pixels = [2 * tiny_media.pixels(seed, a * d, cols) - 1 for _, _, a, d, seed in items]
    where = [get_vision_position_ids(g[None], vision.spatial_merge_size).flip(1) for g in grid]
    frames = videos(ids, items)
    images = [p for p, f in zip(pixels, frames) if not f]
    inputs = dict(pixel_values=torch.cat(images), image_grid_thw=grid[~frames])
    if any(frames):
        inputs |= dict(pixel_values_videos=torch.cat([p for p, f in zip(pixels, frames) if f]), video_grid_thw=grid[frames][:1])
        inputs["video_grid_thw"][0, 0] = sum(frames)
    return inputs, where


def videos(ids, items):
    """Which items are frames of the prompt's video."""
    return torch.tensor([bool(ids[at] == tiny_media.VIDEO) for at, *_ in items])


@torch.no_grad()
def record(model, name, case):
    ids, items = tiny_media.prompt(name, case)
    inputs, where = (qwen35_inputs if "qwen" in name else gemma4_inputs)(model.config, ids, items)
    kinds = ((ids == tiny_media.IMAGE).int() + 2 * (ids == tiny_media.VIDEO).int())[None]
    tensors = golden.record(model, ids, tiny_media.STEPS, every=EVERY * (4 if case == "video" else 1), mm_token_type_ids=kinds, **inputs)
    if (tensors["decode_ids"] >= tiny_media.IMAGE).logical_and(tensors["decode_ids"] <= tiny_media.AUDIO).any():
        raise SystemExit(f"{name} {case}: the continuation has a placeholder: give it another seed")
    frames = videos(ids, items)
    of = lambda *names: [inputs[n] for n in names if n in inputs]
    image_names = ("pixel_values", "image_grid_thw" if "qwen" in name else "image_position_ids")
    encoded = list(model.get_image_features(*of(*image_names), return_dict=True).pooler_output)
    if any(frames):
        rows = model.model.get_video_features(*of("pixel_values_videos", "video_grid_thw", "video_position_ids", "num_frames_per_video"), return_dict=True).pooler_output[0]
        encoded = list(rows.chunk(sum(frames))) + encoded  # the video is first
    if [len(e) for e in encoded] != [i[1] for i in items]:
        raise SystemExit(f"{name} {case}: {[len(e) for e in encoded]} rows, {items}")
    if "qwen" in name:
        prompt, delta = model.model.get_rope_index(ids[None], kinds, image_grid_thw=inputs["image_grid_thw"], video_grid_thw=inputs.get("video_grid_thw"))
        rest = torch.arange(len(ids), len(ids) + tiny_media.STEPS) + delta
        tensors["positions"] = torch.cat([prompt[:, 0], rest.expand(3, -1)], 1).int()
    return tensors | {
        "items": torch.tensor(items, dtype=torch.int32),
        "places": torch.cat(where).int(),
        "encoded": torch.cat(list(encoded)),
    }


def main():
    golden.setup()
    os.makedirs(f"{HERE}/media", exist_ok=True)
    for name in sys.argv[1:] or tiny_media.CHECKPOINTS:
        model, files = tiny_media.write(HERE, name)
        for old in glob.glob(f"{HERE}/media/{name}.*"):
            os.remove(old)
        for case in tiny_media.cases(name):
            golden.save(f"{HERE}/media/{name}.{case}.safetensors", record(model, name, case), model, files)


if __name__ == "__main__":
    main()
