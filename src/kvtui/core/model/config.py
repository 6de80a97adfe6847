"""A checkpoint's configuration in the engine's terms (`srt/configs/model_config.py`, 0.5.23)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvtui.core.facts import Checkpoint, MissingFact
from kvtui.core.model import archs
from kvtui.core.model import shapes as geometry
from kvtui.core.model.fixups import layers_differ
from kvtui.core.model.hf import HfConfig
from kvtui.core.model.known import OWN, support
from kvtui.core.model.linear import Mambaish, mambaish_of
from kvtui.core.model.load import apply_draft, hf_config_of, text_config_of
from kvtui.core.model.quant import (
    METHODS,
    MODELOPT_METHODS,
    ROCM_METHODS,
    checkpoint_quant,
    resolve_quantization,
)
from kvtui.core.model.request import ModelRequest, request_of

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution

DTYPES = {
    "half": "float16",
    "float16": "float16",
    "float": "float32",
    "float32": "float32",
    "bfloat16": "bfloat16",
}
EMBEDDING_GEMMA2_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that the engine refuses while it builds the configuration."""

    kind: str
    """context_length | dtype | quantization | unknown_quantization | rocm_quantization |
    quantize_and_serve | override_json."""
    found: Any = None
    wanted: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class ModelConfig:
    """What the engine knows of a model before it loads weights; attribute names are its own.

    Numbers that a model has no notion of are None. Equality goes by identity: one object is
    built for a checkpoint and a request, and kept.
    """

    name: str
    checkpoint: Checkpoint
    request: ModelRequest
    architectures: tuple[str, ...]
    model_type: str
    hf_config: HfConfig
    """The whole configuration; a missing attribute raises AttributeError, `.get` does not."""
    hf_text_config: HfConfig
    """Its language part, the same object where there is no other part."""
    quantization: str | None
    """The method that the engine runs the checkpoint with."""
    hf_quant_config: Mapping[str, Any]
    """config.json's own `quantization_config`, empty where there is none."""
    dtype: str
    """Compute dtype as a torch name: bfloat16 | float16 | float32."""
    context_len: int
    derived_context_len: int
    """Tokens that the checkpoint itself allows."""
    attention_arch: str
    """MHA | MLA | SSM."""
    head_dim: int
    v_head_dim: int
    swa_head_dim: int
    swa_v_head_dim: int
    kv_lora_rank: int | None
    qk_nope_head_dim: int | None
    qk_rope_head_dim: int | None
    swa_kv_lora_rank: int | None
    swa_qk_rope_head_dim: int | None
    index_head_dim: int | None
    compress_ratios: tuple[int, ...] | None
    window_size: int | None
    num_hidden_layers: int
    num_attention_layers: int
    num_attention_heads: int | None
    num_key_value_heads: int | None
    total_num_kv_heads: int
    hidden_size: int
    vocab_size: int
    num_nextn_predict_layers: int | None
    first_k_dense_replace: int | None
    full_attention_interval: int | None
    sliding_window_size: int | None
    attention_chunk_size: int | None
    is_hybrid_swa: bool
    is_hybrid_swa_compress: bool
    is_deepseek_v4_arch: bool
    swa_attention_layer_ids: tuple[int, ...] | None
    full_attention_layer_ids: tuple[int, ...] | None
    has_attention_sinks: bool
    is_generation: bool
    is_embedding_gemma: bool
    is_lm_only: bool
    model_is_mrope: bool
    is_multimodal: bool
    is_audio_model: bool
    is_image_understandable_model: bool
    is_audio_understandable_model: bool
    is_multimodal_chunked_prefill_supported: bool
    is_encoder_decoder: bool
    is_local_attention_model: bool
    is_piecewise_cuda_graph_disabled_model: bool
    is_multimodal_piecewise_cuda_graph_supported: bool
    is_multimodal_breakable_cuda_graph_supported: bool
    is_draft_model: bool
    is_fp4_experts: bool
    nvfp4_moe_meta: Mapping[str, Any] | None
    requires_mm_token_modalities: bool
    use_ngram_embedding: bool
    use_engram: bool
    hc_hidden_size: int | None
    spec_hidden_size: int
    mambaish: Mambaish | None
    problems: tuple[Problem, ...] = field(default=())

    @property
    def arch(self) -> str:
        """The first architecture, by which the engine dispatches."""
        return self.architectures[0]

    @property
    def support(self) -> str:
        """How the release serves the architecture: own | fallback | refused | unknown."""
        return OWN if self.is_embedding_gemma else support(self.architectures)

    @property
    def is_known(self) -> bool:
        """Whether the release implements the architecture itself."""
        return self.support == OWN

    @property
    def is_embedding(self) -> bool:
        """Whether the model answers with vectors or scores, not text."""
        return not self.is_generation

    @property
    def is_dsa(self) -> bool:
        """DeepSeek sparse attention, as the engine tells it from the whole configuration."""
        return geometry.is_deepseek_dsa(self.hf_config)

    @property
    def has_asymmetric_kv(self) -> bool:
        """Whether K and V rows differ in width."""
        return self.head_dim != self.v_head_dim or self.swa_head_dim != self.swa_v_head_dim

    def get_total_num_attention_heads(self) -> int | None:
        """Query heads of the whole model."""
        return self.num_attention_heads

    def get_num_attention_heads(self, tensor_parallel_size: int) -> int:
        """Query heads on one rank, at least one."""
        return max(1, (self.num_attention_heads or 0) // max(1, tensor_parallel_size))

    def get_max_num_attention_heads(self) -> int | None:
        """The largest query head count of any layer."""
        per_layer = self.hf_text_config.get("num_attention_heads_per_layer")
        return max(per_layer) if per_layer else self.num_attention_heads

    def get_total_num_kv_heads(self) -> int:
        """KV heads of the whole model."""
        return self.total_num_kv_heads

    def get_num_kv_heads(self, tensor_parallel_size: int, dcp_size: int = 1) -> int:
        """KV heads on one rank, at least one; context-parallel decode ranks hold copies."""
        groups = tensor_parallel_size // (1 if self.is_draft_model else max(1, dcp_size))
        return max(1, self.total_num_kv_heads // max(1, groups))

    def get_swa_num_kv_heads(self, tensor_parallel_size: int) -> int:
        """KV heads of sliding layers on one rank, at least one."""
        text = self.hf_text_config
        total: Any = None
        if "swa_num_key_value_heads" in text:
            total = text.get("swa_num_key_value_heads")
        elif isinstance(text.get("attention_other_setting"), Mapping):
            total = text.attention_other_setting.get("num_attention_groups")
        if total is None:
            return self.get_num_kv_heads(tensor_parallel_size)
        return max(1, int(total) // max(1, tensor_parallel_size))


def _overrides(request: ModelRequest) -> tuple[Mapping[str, Any], Problem | None]:
    try:
        found = json.loads(request.overrides)
    except ValueError:
        return {}, Problem("override_json", request.overrides)
    if isinstance(found, dict):
        return found, None
    return {}, Problem("override_json", request.overrides)


def _dtype(text: HfConfig, asked: Any) -> tuple[str, Problem | None]:
    stated = text.get("dtype", text.get("torch_dtype"))
    own = DTYPES.get(stated, "float32") if isinstance(stated, str) else "float32"
    wanted = asked.lower() if isinstance(asked, str) else asked
    if wanted == "auto":
        if own != "float32":
            return own, None
        kind = text.get("model_type")
        gemma = isinstance(kind, str) and kind.startswith("gemma")
        return ("bfloat16" if gemma else "float16"), None
    if wanted not in DTYPES:
        return own, Problem("dtype", asked, tuple(DTYPES))
    return DTYPES[wanted], None


def _context(config: HfConfig, derived: int, request: ModelRequest) -> tuple[int, Problem | None]:
    asked = request.context_length
    if asked is None:
        gemma2 = config.architectures[0] == "EmbeddingGemma2Model"
        return (min(derived, EMBEDDING_GEMMA2_CONTEXT) if gemma2 else derived), None
    if not isinstance(asked, int) or asked <= derived or request.longer_context_allowed:
        return (asked if isinstance(asked, int) else derived), None
    return asked, Problem("context_length", asked, derived)


def _quantization(
    config: HfConfig, checkpoint: Checkpoint, request: ModelRequest
) -> tuple[str | None, list[Problem]]:
    stated = config.get("quantization_config")
    compression = config.get("compression_config")
    own = checkpoint_quant(
        stated if isinstance(stated, Mapping) else None,
        compression if isinstance(compression, Mapping) else None,
        checkpoint.quant_config,
    )
    if isinstance(stated, Mapping) and own is not None:
        config.put("quantization_config", own)
    method, contradicted = resolve_quantization(own, request)
    problems = []
    if contradicted is not None:
        problems.append(Problem("quantization", method, contradicted))
    elif method is not None and method not in METHODS:
        problems.append(Problem("unknown_quantization", method))
    elif method is not None and request.vendor == "amd" and method not in ROCM_METHODS:
        problems.append(Problem("rocm_quantization", method))
    if request.quantize_and_serve:
        problems.append(Problem("quantize_and_serve", request.quantization in MODELOPT_METHODS))
    return method, problems


def _multimodal_enabled(config: HfConfig, request: ModelRequest) -> bool:
    if request.enable_multimodal is not None:
        return bool(request.enable_multimodal)
    arch = config.architectures[0]
    if arch in archs.MULTIMODAL_OFF_BY_DEFAULT and request.model_impl != "transformers":
        return False
    towers = "vision_config" in config and "audio_config" in config
    return arch != "MiMoV2ForCausalLM" or towers


def _modalities(config: HfConfig, text: HfConfig, request: ModelRequest) -> dict[str, Any]:
    """The `is_*` flags that say what a model takes in, and which graphs follow from that."""
    names = frozenset(config.architectures)
    enabled = _multimodal_enabled(config, request)
    lm_only = bool(request.language_model_only or config.get("language_model_only", False))
    nested = config is not text or (
        request.model_impl == "transformers"
        and ("vision_config" in config or "audio_config" in config)
    )
    dsv41 = config.get("model_type") == "deepseek_v41" and config.get("vision_n_layers", 0) > 0
    multimodal = (
        enabled and not lm_only and (not names.isdisjoint(archs.MULTIMODAL) or nested or dsv41)
    )
    thinker = config.get("thinker_config")
    audio = (
        "audio_config" in config
        or (isinstance(thinker, HfConfig) and "audio_config" in thinker)
        or config.get("sound_config") is not None
        or not names.isdisjoint(archs.AUDIO)
    )
    piecewise = not names.isdisjoint(archs.MULTIMODAL_PIECEWISE_GRAPH)
    rope = text.get("rope_parameters") or text.get("rope_scaling")
    return {
        "is_lm_only": lm_only,
        "model_is_mrope": not lm_only and isinstance(rope, Mapping) and "mrope_section" in rope,
        "is_multimodal": multimodal,
        "is_audio_model": enabled and not names.isdisjoint(archs.AUDIO),
        "is_image_understandable_model": multimodal
        and (config.get("vision_config") is not None or dsv41),
        "is_audio_understandable_model": enabled and not lm_only and audio,
        "is_multimodal_chunked_prefill_supported": enabled
        and names.isdisjoint(archs.NO_MULTIMODAL_CHUNKED_PREFILL),
        "is_encoder_decoder": not names.isdisjoint(archs.ENCODER_DECODER),
        "is_local_attention_model": "Llama4ForConditionalGeneration" in names,
        "is_piecewise_cuda_graph_disabled_model": not names.isdisjoint(archs.NO_PIECEWISE_GRAPH)
        or (multimodal and not piecewise),
        "is_multimodal_piecewise_cuda_graph_supported": enabled and piecewise,
        "is_multimodal_breakable_cuda_graph_supported": enabled
        and not names.isdisjoint(archs.MULTIMODAL_BREAKABLE_GRAPH),
    }


def _fp4_experts(config: HfConfig, quant: Mapping[str, Any], request: ModelRequest) -> bool:
    layout = quant.get("routed_experts_quant_method")
    arch = config.architectures[0]
    if layout == "mxfp4":
        return True
    if arch in archs.MIMO_V2 and str(quant.get("store_dtype") or "").lower() == "mxfp4":
        return True
    if arch in archs.DEEPSEEK_V4 and layout is None:
        return request.fp4_experts is not False
    return False


def _nvfp4_meta(quant: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Group size and skipped modules of a checkpoint with FP8 layers and NVFP4 experts."""
    mixed = str(quant.get("quant_algo", "")).upper() == "MIXED_PRECISION"
    nvfp4 = str(quant.get("moe_quant_algo", "")).upper() == "NVFP4"
    size = quant.get("group_size")
    if not (mixed and nvfp4 and size is not None):
        return None
    return {"group_size": int(size), "exclude_modules": tuple(quant.get("ignore") or ())}


def _hidden_streams(config: HfConfig, text: HfConfig, hidden: int) -> tuple[int, int | None]:
    """(hidden size that a draft sees, flattened hidden size of a hyper-connected model)."""
    streams = int(text.get("hc_mult") or 1)
    glm5_next = (
        config.get("model_type") == "glm5_next" or text.get("model_type") == "glm5_next_text"
    )
    if glm5_next:
        wide = hidden * streams if text.get("mhc", False) and streams > 1 else None
        return hidden, wide
    carries = config.architectures[0] in archs.DEEPSEEK_V4 | {
        "Qwen4ExpForConditionalGeneration",
        "Qwen4ExpForCausalLMMTP",
    }
    if streams <= 1 or not carries:
        return hidden, None
    return hidden * streams, hidden * streams


def _is_generation(config: HfConfig, text: HfConfig, request: ModelRequest) -> tuple[bool, bool]:
    embedding_gemma = text.get("model_type") == "gemma3_text" and bool(
        text.get("use_bidirectional_attention", False)
    )
    by_name = frozenset(config.architectures).isdisjoint(archs.NOT_GENERATION)
    return embedding_gemma, not embedding_gemma and by_name and not request.is_embedding


def build(checkpoint: Checkpoint, request: ModelRequest) -> ModelConfig:
    """The configuration of a checkpoint under a request; raises MissingFact for a bad file."""
    problems: list[Problem] = []

    def noted(pair: tuple[Any, Problem | None]) -> Any:
        if pair[1] is not None:
            problems.append(pair[1])
        return pair[0]

    config = hf_config_of(checkpoint, noted(_overrides(request)))
    text = text_config_of(config)
    if request.is_draft_model:
        config, text = apply_draft(config, text, request)
    if config.architectures[0] in archs.DEEPSEEK_V4 and config.get("n_group") is not None:
        config.put("topk_group", config.n_group)
    quant = config.get("quantization_config")
    quant = quant if isinstance(quant, Mapping) else {}
    is_fp4 = _fp4_experts(config, quant, request)
    nvfp4 = _nvfp4_meta(quant)
    quantization, found = _quantization(config, checkpoint, request)
    problems.extend(found)
    if layers_differ(config):
        problems.append(Problem("layer_shapes", config.get("model_type")))
    derived = geometry.derived_context_length(text)
    shapes = geometry.shapes_of(config, text)
    layers = geometry.number(text, "num_hidden_layers")
    heads = geometry.optional_number(text, "num_attention_heads")
    hidden = geometry.number(text, "hidden_size")
    hybrid = geometry.is_hybrid_swa(config, text) and not request.disable_hybrid_swa_memory
    dsv4 = hybrid and not frozenset(config.architectures).isdisjoint(archs.DEEPSEEK_V4)
    split = geometry.window_split(config, text) if hybrid and not dsv4 else (None, None)
    embedding_gemma, generation = _is_generation(config, text, request)
    spec_hidden, hc_hidden = _hidden_streams(config, text, hidden)
    return ModelConfig(
        name=checkpoint.name,
        checkpoint=checkpoint,
        request=request,
        architectures=tuple(config.architectures),
        model_type=str(config.get("model_type", "")),
        hf_config=config,
        hf_text_config=text,
        quantization=quantization,
        hf_quant_config=quant,
        dtype=noted(_dtype(text, request.dtype)),
        context_len=noted(_context(config, derived, request)),
        derived_context_len=derived,
        **{name: getattr(shapes, name) for name in shapes.__slots__},
        num_hidden_layers=layers,
        num_attention_layers=geometry.attention_layer_count(config, text, layers),
        num_attention_heads=heads,
        num_key_value_heads=_kv_heads(config, text, heads),
        total_num_kv_heads=geometry.total_kv_heads(config, text, shapes.attention_arch),
        hidden_size=hidden,
        vocab_size=_vocab(config, text),
        num_nextn_predict_layers=geometry.optional_number(text, "num_nextn_predict_layers"),
        first_k_dense_replace=geometry.optional_number(text, "first_k_dense_replace"),
        full_attention_interval=geometry.optional_number(text, "full_attention_interval"),
        sliding_window_size=_window(config, text, request),
        attention_chunk_size=text.get("attention_chunk_size"),
        is_hybrid_swa=hybrid,
        is_hybrid_swa_compress=config.architectures[0] in archs.HYBRID_SWA_COMPRESS,
        is_deepseek_v4_arch=dsv4,
        swa_attention_layer_ids=split[0],
        full_attention_layer_ids=split[1],
        has_attention_sinks=geometry.has_attention_sinks(config, text),
        is_generation=generation,
        is_embedding_gemma=embedding_gemma,
        **_modalities(config, text, request),
        is_draft_model=request.is_draft_model,
        is_fp4_experts=is_fp4,
        nvfp4_moe_meta=nvfp4,
        requires_mm_token_modalities=_multi_gate(config, text),
        use_ngram_embedding=bool(config.get("use_ngram_embedding", False)),
        use_engram=bool(config.get("engram_layer_ids", ())),
        hc_hidden_size=hc_hidden,
        spec_hidden_size=spec_hidden,
        mambaish=mambaish_of(config, text, request.is_draft_model),
        problems=tuple(problems),
    )


def _kv_heads(config: HfConfig, text: HfConfig, heads: int | None) -> int | None:
    if config.get("model_type") in ("dbrx", "mpt"):
        attention = config.get("attn_config")
        stated = attention.get("kv_n_heads") if isinstance(attention, (Mapping, HfConfig)) else None
        return heads if stated is None else int(stated)
    stated = geometry.optional_number(text, "num_key_value_heads")
    return heads if stated is None else stated


def _vocab(config: HfConfig, text: HfConfig) -> int:
    image = config.architectures[0] == "GlmImageForConditionalGeneration"
    return geometry.number(text, "vision_vocab_size" if image else "vocab_size")


def _window(config: HfConfig, text: HfConfig, request: ModelRequest) -> int | None:
    own = geometry.sliding_window(text)
    inkling_draft = request.is_draft_model and text.get("mtp_local_layer_ids")
    return (text.get("mtp_local_extent") or own) if inkling_draft else own


def _multi_gate(config: HfConfig, text: HfConfig) -> bool:
    wrappers = {
        "BailingMMNativeForConditionalGeneration",
        "BailingMM2NativeForConditionalGeneration",
        "BailingMoeV3VLForConditionalGeneration",
    }
    return not wrappers.isdisjoint(config.architectures) and bool(
        text.get("multi_gate") or text.get("router_type") == "MultiRouter"
    )


@lru_cache(maxsize=512)
def _cached(checkpoint: Checkpoint, request: ModelRequest) -> ModelConfig | MissingFact:
    """`build`, with what it raised kept as a value so that a bad file is read once too."""
    try:
        return build(checkpoint, request)
    except MissingFact as missing:
        return missing
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
        key = error.name if isinstance(error, AttributeError) else str(error)
        return MissingFact("model", f"{checkpoint.name}: config.json: no usable value for {key}")


def checkpoint_config(checkpoint: Checkpoint, request: ModelRequest) -> ModelConfig:
    """The configuration of a checkpoint under a request, kept; raises MissingFact."""
    found = _cached(checkpoint, request)
    if isinstance(found, MissingFact):
        raise found
    return found


def model_of(r: Resolution) -> ModelConfig:
    """The target model's configuration; raises MissingFact.

    Built on first use and kept until a step replaces `model_path`, as the engine does: an
    option that a hook changes afterwards leaves no mark on it (model_override_base.py:198).
    """
    path = r.model_path
    held = r.scratch.get("model_config")
    if held is not None and held[0] == path:
        return held[1]  # type: ignore[no-any-return]
    if not isinstance(path, str) or not path:
        raise MissingFact("model", "no model was named")
    model = checkpoint_config(r.facts.checkpoint(path), request_of(r))
    r.scratch["model_config"] = (path, model)
    return model


def draft_model_of(r: Resolution) -> ModelConfig:
    """The draft model's configuration (`--speculative-draft-model-path`, or the target's own
    head); raises MissingFact."""
    path = r.speculative_draft_model_path or r.model_path
    if not isinstance(path, str) or not path:
        raise MissingFact("model", "no draft model was named")
    return checkpoint_config(r.facts.checkpoint(path), request_of(r, draft=True))


def serving_model_of(r: Resolution) -> ModelConfig:
    """The target's configuration as rebuilt from the final values when the runner starts."""
    path = r.model_path
    if not isinstance(path, str) or not path:
        raise MissingFact("model", "no model was named")
    return checkpoint_config(r.facts.checkpoint(path), request_of(r))
