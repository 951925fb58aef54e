"""Records block_hashes.json: block hashes as vLLM computes them with sha256_cbor.

Python 3.11, cbor2 6.3.0:  python3 record_hashes.py > block_hashes.json

NONE_HASH is the hash of PYTHONHASHSEED as a string; a block's hash is that of the tuple (hash of the
block before it, tuple of token ids, tuple of extra keys or None). Extra keys are the LoRA adapter's
name and, for the first block, the request's cache_salt. (vllm/v1/core/kv_cache_utils.py, 0.33.0)
"""

import hashlib
import json

import cbor2


def sha256_cbor(value):
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def case(seed, adapter, salt, block_size, tokens):
    none = parent = sha256_cbor(seed)
    hashes = []
    for at in range(0, len(tokens) - block_size + 1, block_size):
        keys = ([adapter] if adapter else []) + ([salt] if salt and at == 0 else [])
        parent = sha256_cbor((parent, tuple(tokens[at : at + block_size]), tuple(keys) or None))
        hashes.append(parent.hex())
    return dict(seed=seed, adapter=adapter, salt=salt, block_size=block_size, tokens=tokens, none=none.hex(), hashes=hashes)


WIDTHS = [0, 23, 24, 255, 256, 65535, 65536, 2147483647]  # each width of CBOR's integers
print(json.dumps([
    case("0", "", "", 4, WIDTHS),
    case("42", "sql", "tenant é", 2, WIDTHS[:6]),
    case("", "", "s" * 300, 32, list(range(1000, 1064))),
], indent=None, separators=(",", ":")))
