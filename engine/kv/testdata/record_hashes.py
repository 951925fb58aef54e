"""Records block_hashes.json: block hashes as vLLM computes them with sha256_cbor.

Python 3.11, cbor2 6.3.0:  python3 record_hashes.py > block_hashes.json

NONE_HASH is the hash of PYTHONHASHSEED as a string; a block's hash is that of the tuple (hash of the
block before it, tuple of token ids, tuple of extra keys or None). Extra keys are the LoRA adapter's
name, for each item (name, first token, tokens) of the block a pair of its name and where it begins
from the block's first token, and for the first block the request's cache_salt. (vllm/v1/core/kv_cache_utils.py, 0.33.0)
"""

import hashlib
import json

import cbor2


def sha256_cbor(value):
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def case(seed, adapter, salt, block_size, tokens, items=()):
    none = parent = sha256_cbor(seed)
    hashes = []
    for at in range(0, len(tokens) - block_size + 1, block_size):
        keys = ([adapter] if adapter else []) + [
            (name, first - at) for name, first, n in items if first < at + block_size and first + n > at
        ] + ([salt] if salt and at == 0 else [])
        parent = sha256_cbor((parent, tuple(tokens[at : at + block_size]), tuple(keys) or None))
        hashes.append(parent.hex())
    return dict(seed=seed, adapter=adapter, salt=salt, block_size=block_size, tokens=tokens, none=none.hex(), hashes=hashes) | (dict(items=items) if items else {})


WIDTHS = [0, 23, 24, 255, 256, 65535, 65536, 2147483647]  # each width of CBOR's integers
print(json.dumps([
    case("0", "", "", 4, WIDTHS),
    case("42", "sql", "tenant é", 2, WIDTHS[:6]),
    case("", "", "s" * 300, 32, list(range(1000, 1064))),
    case("0", "sql", "tenant", 4, [7] * 24, [("cat", 2, 9), ("8f" * 32, 11, 1), ("cat", 14, 6)]),
    case("0", "", "", 2, [7] * 60, [("long", 1, 58)]),
], indent=None, separators=(",", ":")))
