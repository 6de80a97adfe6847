"""A rough size of what a forward pass and captured graphs take besides weights and pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtui.core.capacity.parts import expert_width, experts_of, number
from kvtui.core.derived import attn_dp_enabled, whole
from kvtui.core.facts import GIB
from kvtui.core.pools.geometry import Geometry
from kvtui.core.steps.memory import activation_tokens

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution

WORKING_ERROR = 0.6
"""Likely relative error: boot logs spread from 0.4 to 1.6 times the estimate."""

LIBRARIES_BYTES = 0.15 * GIB
"""Work spaces of attention and matrix libraries."""
GRAPH_BYTES_PER_ROW = 1.5 * 2
"""Bytes that a captured batch row keeps for each hidden unit and layer, intermediate buffers
shared between graphs."""
LIVE_COPIES = 8
"""Hidden-sized tensors alive at once in a layer."""


def working_bytes(r: Resolution, g: Geometry) -> float:
    """Bytes of activations of the largest forward, plus graphs of the largest batch."""
    model, text = g.model, g.model.hf_text_config
    hidden, tokens = int(model.hidden_size), activation_tokens(r)
    tp = max(1, whole(r.tp_size, 1))
    inner = number(text, "intermediate_size", default=4 * hidden) // tp
    if experts_of(text):
        chosen = number(text, "num_experts_per_tok", "num_experts_per_token", default=8)
        inner = max(inner, chosen * expert_width(text) // tp, chosen * hidden // 4)
    activations = tokens * (LIVE_COPIES * hidden + 3 * inner) * 2
    if attn_dp_enabled(r):
        activations *= 2
    config = r.cuda_graph_config
    rows = (config.decode.max_bs or 0) if config.decode.enabled else 0
    rows *= max(1, whole(r.speculative_num_draft_tokens, 1) or 1)
    logits = rows * int(model.vocab_size) * 4 * 2
    graphs = rows * hidden * GRAPH_BYTES_PER_ROW * g.layers / 4
    if config.prefill.enabled:
        graphs += len(config.prefill.bs or ()) * 4 * 1024 * 1024
    return float(activations + graphs + logits + LIBRARIES_BYTES)
