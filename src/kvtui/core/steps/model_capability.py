"""What a model's kind forbids once everything else is resolved.

Mirrors `handle_model_capability_adjustments` of `srt/arg_groups/model_hook.py` (0.5.23).
"""

from __future__ import annotations

from kvtui.core.derived import from_instance, whole
from kvtui.core.graphs import BREAKABLE, DECODE, DISABLED, PREFILL, GraphConfig, prefill_graph_sizes
from kvtui.core.resolution import Part, Resolution, step
from kvtui.core.steps.deepseek_v41 import ENCODER_REPLAY_BUDGET
from kvtui.core.steps.model_common import settle

HOOK = "arg_groups/model_hook.py"
EMBEDDING_BATCH_TOKENS = 16384
"""Prefill graphs of EmbeddingGemma reach eight prompts of 2048 tokens."""

POOLING_ARCHS = frozenset(
    {
        "BertModel",
        "CLIPModel",
        "Contriever",
        "LlamaEmbeddingModel",
        "MistralModel",
        "XLMRobertaModel",
        "EmbeddingGemma2Model",
    }
)
"""Architectures that can only embed (configs/embedding_model_spec.py:116)."""

CLASSIFIERS = frozenset(
    {
        "BertForSequenceClassification",
        "LlamaForSequenceClassification",
        "LlamaForSequenceClassificationWithNormal_Weights",
        "Qwen2ForSequenceClassification",
        "Qwen3ForSequenceClassification",
        "XLMRobertaForSequenceClassification",
    }
)


def _graphs_off(r: Resolution, why: str, *phases: str) -> None:
    graphs: GraphConfig = r.cuda_graph_config
    for phase in phases:
        graphs = graphs.with_phase(phase, backend=DISABLED)
    r.declare(why, cuda_graph_config=graphs)


@step(f"{HOOK}:784")
def hrm_text(r: Resolution) -> None:
    """HRM-Text reads its prompt both ways, on Triton, whole and without graphs."""
    if from_instance(r) or not r.model.hf_config.get("prefix_lm", True):
        return
    if r.model.model_type != "hrm_text" and "HrmTextForCausalLM" not in r.model.architectures:
        return
    why = "HRM-Text reads its prompt both ways"
    settle(
        r, why, attention_backend="triton", chunked_prefill_size=-1, disable_radix_cache=True,
        disable_cuda_graph=True,
    )  # fmt: skip
    _graphs_off(r, why, DECODE, PREFILL)


@step(f"{HOOK}:846")
def embedding_architecture(r: Resolution) -> None:
    """An architecture that can only embed serves embeddings without being told."""
    if from_instance(r):
        return
    names = frozenset(r.model.architectures)
    by_name = names.isdisjoint(CLASSIFIERS) and not names.isdisjoint(POOLING_ARCHS)
    if (by_name or r.model.is_embedding_gemma) and not r.is_embedding:
        r.default("the architecture only embeds", is_embedding=True)
    if "EmbeddingGemma2Model" in names or r.model.is_embedding_gemma:
        why = "prompts are read both ways and whole"
        settle(r, why, disable_radix_cache=True, chunked_prefill_size=-1)


def _raw_kv(r: Resolution) -> bool:
    asked = r.prefill_attention_backend or r.attention_backend
    gpu = r.platform
    return gpu.is_cuda and (gpu.is_sm90 or gpu.is_sm100) and asked in (None, "fa3", "fa4")


@step(f"{HOOK}:876")
def embedding_gemma(r: Resolution) -> None:
    """EmbeddingGemma runs one prefill a prompt, without a KV pool where FA can do that."""
    if from_instance(r) or not r.model.is_embedding_gemma:
        return
    settle(r, "whole batches are embedded at once", enable_tokenizer_batch_encode=True)
    if _raw_kv(r):
        settle(r, "its prefill reads K and V directly", prefill_only_disable_kv_cache=True)
    graphs: GraphConfig = r.cuda_graph_config.with_phase(DECODE, backend=DISABLED)
    if not r.platform.is_cuda:
        graphs = graphs.with_phase(PREFILL, backend=DISABLED)
    elif graphs.prefill.backend != DISABLED:
        graphs = _embedding_graphs(r, graphs.with_phase(PREFILL, backend=BREAKABLE))
    r.declare("an embedding is one prefill", cuda_graph_config=graphs)


def _embedding_graphs(r: Resolution, graphs: GraphConfig) -> GraphConfig:
    if graphs.is_locked(PREFILL, "max_bs"):
        return graphs
    most = max(whole(graphs.prefill.max_bs), r.model.context_len, EMBEDDING_BATCH_TOKENS)
    graphs = graphs.with_phase(PREFILL, max_bs=most)
    if graphs.is_locked(PREFILL, "bs"):
        return graphs
    return graphs.with_phase(PREFILL, bs=prefill_graph_sizes(most))


@step(f"{HOOK}:1017")
def multimodal_chunks(r: Resolution) -> None:
    """Some multimodal models read prompts whole."""
    if from_instance(r):
        return
    model = r.model
    if model.is_multimodal and not model.is_multimodal_chunked_prefill_supported:
        settle(r, "this model reads images with the whole prompt", chunked_prefill_size=-1)


HANDLE_MODEL_CAPABILITY_ADJUSTMENTS: tuple[Part, ...] = (
    hrm_text,
    embedding_architecture,
    embedding_gemma,
    multimodal_chunks,
    *ENCODER_REPLAY_BUDGET,
)
