"""Turn SmolLM2's GGUF file into a model directory that `from_pretrained` reads.

Transformers can load the same file, but takes several times as long on every start, and the
tokenizer that it builds lacks the digit splitting of SmolLM2. This reader does the work once.
Weights are dequantised to float32 without any further rounding, so a sampler and a trainer that
load the directory see the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader
    from numpy.typing import NDArray

__all__ = ["convert"]

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_CONTROL_TOKEN = 3


def convert(source: Path, target: Path) -> None:
    """Write config, weights and tokenizer of the Llama-type GGUF file `source` into `target`."""
    from gguf import GGUFReader
    from safetensors.numpy import save_file

    reader = GGUFReader(source)
    config = _config(reader)
    weights = dict(_weights(reader, config))
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    _write_json(target / "config.json", config)
    _write_json(target / "generation_config.json", _generation_config(config))
    _write_tokenizer(reader, target)


def _field(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise ValueError(f"{key} is missing")
    return field.contents()


def _config(reader: GGUFReader) -> dict[str, Any]:
    def llama(key: str) -> Any:
        return _field(reader, f"llama.{key}")

    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": llama("vocab_size"),
        "hidden_size": llama("embedding_length"),
        "intermediate_size": llama("feed_forward_length"),
        "num_hidden_layers": llama("block_count"),
        "num_attention_heads": llama("attention.head_count"),
        "num_key_value_heads": llama("attention.head_count_kv"),
        "head_dim": llama("rope.dimension_count"),
        "max_position_embeddings": llama("context_length"),
        "rms_norm_eps": llama("attention.layer_norm_rms_epsilon"),
        "rope_parameters": {"rope_type": "default", "rope_theta": llama("rope.freq_base")},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _field(reader, "tokenizer.ggml.padding_token_id"),
    }


def _generation_config(config: dict[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}


def _weights(
    reader: GGUFReader, config: dict[str, Any]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    import numpy as np
    from gguf import dequantize

    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        if ".attn_q." in tensor.name:
            values = _unpermute(values, config["num_attention_heads"])
        elif ".attn_k." in tensor.name:
            values = _unpermute(values, config["num_key_value_heads"])
        yield _hf_name(tensor.name), np.ascontiguousarray(values)


def _unpermute(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo GGUF's interleaving of the two halves of each head's rotary dimensions."""
    half = values.shape[0] // heads // 2
    return values.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(values.shape)


def _hf_name(name: str) -> str:
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"
    return f"{_TOP_NAMES[parts[0]]}.weight"


def _write_tokenizer(reader: GGUFReader, target: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(pair.split(" ")) for pair in _field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = _field(reader, "tokenizer.ggml.token_type")
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    tokenizer.save(str(target / "tokenizer.json"))
    _write_json(target / "tokenizer_config.json", _tokenizer_config(reader, tokens))


def _tokenizer_config(reader: GGUFReader, tokens: list[str]) -> dict[str, Any]:
    def token(kind: str) -> str:
        return tokens[int(_field(reader, f"tokenizer.ggml.{kind}_token_id"))]

    return {
        # Not a Llama tokenizer class: those put a pre-tokenizer of their own over ours.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": token("bos"),
        "eos_token": token("eos"),
        "unk_token": token("unknown"),
        "pad_token": token("padding"),
        "model_max_length": _field(reader, "llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "chat_template": _field(reader, "tokenizer.chat_template"),
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
