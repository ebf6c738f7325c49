"""The MiniLM sentence encoder once more, in NumPy alone: what examples/infer.py is compared with.

Written from BERT's definition (Devlin and others, arXiv 1810.04805) and the model's config.json, sentence by sentence
without padding, in float64; reads the safetensors file by itself.
"""

import json
import math
from pathlib import Path

import numpy as np

HEADS = 12
_erf = np.vectorize(math.erf, otypes=[np.float64])


def load_weights(path: Path) -> dict[str, np.ndarray]:
    """All float32 tensors of a safetensors file: u64 header length, JSON header, data."""
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    weights = {}
    for name, entry in json.loads(data[8 : 8 + header_bytes]).items():
        if entry.get("dtype") == "F32":
            start, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
            weights[name] = np.frombuffer(data[start:end], np.float32).reshape(entry["shape"]).astype(np.float64)
    return weights


def _dense(weights: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _layer_norm(weights: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def embed(weights: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """The embedding of one sentence's token ids ([CLS] … [SEP], no padding); length 384, norm 1."""
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)] + weights["embeddings.token_type_embeddings.weight"][0]
    x = _layer_norm(weights, "embeddings.LayerNorm", x)
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in weights:
        base = f"encoder.layer.{layer}"
        query, key, value = (_dense(weights, f"{base}.attention.self.{part}", x) for part in ("query", "key", "value"))
        width = x.shape[1] // HEADS
        heads = []
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            scores = query[:, part] @ key[:, part].T / np.sqrt(width)
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            heads.append(shares / shares.sum(axis=1, keepdims=True) @ value[:, part])
        attended = _dense(weights, f"{base}.attention.output.dense", np.concatenate(heads, axis=1))
        x = _layer_norm(weights, f"{base}.attention.output.LayerNorm", x + attended)
        inner = _dense(weights, f"{base}.intermediate.dense", x)
        inner = inner * 0.5 * (1 + _erf(inner / math.sqrt(2)))
        x = _layer_norm(weights, f"{base}.output.LayerNorm", x + _dense(weights, f"{base}.output.dense", inner))
        layer += 1
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)
