"""Record the reference logits of the families other than Llama, on small random checkpoints.

    python record_families.py [NAME...]

Rewrites tiny-*/ and golden/tiny-*.safetensors of these families. README.md has the formats.
"""

import os
import sys

import gguf_families
import golden
import tiny_families
import tiny_moe

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    golden.setup()
    for name in sys.argv[1:] or [*tiny_families.CHECKPOINTS, *tiny_families.ROUNDED, *tiny_moe.CHECKPOINTS, *gguf_families.CHECKPOINTS]:
        of = next((m for m in (gguf_families, tiny_moe) if name in m.CHECKPOINTS), tiny_families)
        model, files = of.write(HERE, name)
        tensors = golden.record(model, of.prompt(name), of.STEPS if of is gguf_families else of.steps(name))
        golden.save(f"{HERE}/golden/{name}.safetensors", tensors, model, files)


if __name__ == "__main__":
    main()
