"""Record positions.json: rope positions of prompts with images and videos.

    python positions.py

It runs get_rope_index of Qwen3.5 in transformers on made-up prompts: needs torch. Positions are
recorded as the SHA-256 of little-endian int32, token after token: time, row, column. Versions are
in the file.
"""

import hashlib
import json
import pathlib
import types

import torch
import transformers
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5Model

MERGE = 2
TEXT, IMAGE, VIDEO = 0, 1, 2

# A part is a number of text tokens, or (kind, frames, rows, columns) in merged tokens.
CASES = {
    "text": [7],
    "one token": [1],
    "image first": [(IMAGE, 1, 4, 6), 3],
    "image last": [5, (IMAGE, 1, 6, 4)],
    "image only": [(IMAGE, 1, 3, 3)],
    "one row": [2, (IMAGE, 1, 1, 9), 4],
    "one column": [2, (IMAGE, 1, 9, 1), 4],
    "one token image": [2, (IMAGE, 1, 1, 1), 2],
    "two images": [4, (IMAGE, 1, 2, 5), 2, (IMAGE, 1, 7, 3), 6],
    "ten images": sum(([n + 1, (IMAGE, 1, n + 1, 10 - n)] for n in range(10)), []) + [3],
    "video of one pair": [3, (VIDEO, 1, 4, 4), 2],
    "video": [3, (VIDEO, 5, 4, 6), 2],
    "image and video": [3, (IMAGE, 1, 5, 2), 4, (VIDEO, 3, 2, 3), 2, (IMAGE, 1, 2, 2), 1],
    "two videos": [1, (VIDEO, 2, 3, 3), 5, (VIDEO, 4, 1, 6), 2],
    "large image": [20, (IMAGE, 1, 128, 96), 30],
    "long": [3000, (IMAGE, 1, 17, 30), 1200, (VIDEO, 16, 9, 16), 800],
}


def spans(parts):
    """Types of tokens, grids of images and videos, and spans; frames of a video are 2 text tokens apart."""
    kinds, images, videos, out = [], [], [], []
    for part in parts:
        if isinstance(part, int):
            kinds += [TEXT] * part
            continue
        kind, frames, down, across = part
        (images if kind == IMAGE else videos).append([frames, down * MERGE, across * MERGE])
        for frame in range(frames):
            kinds += [TEXT] * 2 * (frame > 0)
            out.append([len(kinds), across, down])
            kinds += [kind] * (across * down)
    return kinds, images, videos, out


def main():
    model = types.SimpleNamespace(config=types.SimpleNamespace(vision_config=types.SimpleNamespace(spatial_merge_size=MERGE)))
    model.get_vision_position_ids = types.MethodType(Qwen3_5Model.get_vision_position_ids, model)
    cases = []
    for name, parts in CASES.items():
        kinds, images, videos, where = spans(parts)
        grid = lambda g: torch.tensor(g) if g else None
        at, delta = Qwen3_5Model.get_rope_index(model, torch.zeros(1, len(kinds), dtype=torch.long), torch.tensor([kinds]), grid(images), grid(videos))
        at = at[:, 0].T.contiguous().numpy().astype("<i4")
        case = {"name": name, "tokens": len(kinds), "spans": where, "delta": int(delta), "last": at[-1].tolist(), "sha256": hashlib.sha256(at.tobytes()).hexdigest()}
        cases.append(case)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = ",\n  ".join(json.dumps(c, ensure_ascii=False) for c in cases)
    text = f'{{"versions": {json.dumps(versions)},\n "cases": [\n  {lines}\n]}}\n'
    pathlib.Path(__file__).with_name("positions.json").write_text(text)


if __name__ == "__main__":
    main()
