"""Bytes that a parameter takes once its checkpoint is loaded, by quantisation and module.

Reads the same lists of left-out modules that the engine's quantisation configs read
(srt/layers/quantization of 0.5.23).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvtui.core.model.config import ModelConfig

DTYPE_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}

NVFP4 = 0.5 + 1 / 16
MXFP4 = 0.5 + 1 / 32
MXFP8 = 1 + 1 / 32
INT8 = FP8 = 1.0
NF4 = 0.5 + 1 / 64 * 4

ALGO_BYTES = {
    "FP8": FP8, "FP8_PB_WO": FP8, "NVFP4": NVFP4, "NVFP4_AWQ": NVFP4, "W4A16_NVFP4": NVFP4,
    "MXFP8": MXFP8, "MXFP4": MXFP4, "INT8": INT8, "W8A8_SQ_PER_CHANNEL": INT8,
    "W4A8_AWQ": 0.5 + 2 / 128, "INT4_AWQ": 0.5 + 2 / 128,
}  # fmt: skip
"""Bytes a parameter by ModelOpt's name of the format, scales included."""

METHOD_BYTES = {
    "fp8": FP8, "w8a8_fp8": FP8, "fbgemm_fp8": FP8, "modelopt_fp8": FP8, "ptpc_fp8": FP8,
    "modelopt_fp4": NVFP4, "nvfp4": NVFP4, "petit_nvfp4": NVFP4, "minimax_m3_nvfp4": NVFP4,
    "mxfp8": MXFP8, "mxfp4": MXFP4, "quark_mxfp4": MXFP4, "w8a8_int8": INT8,
    "blockwise_int8": INT8, "bitsandbytes": NF4, "w4afp8": FP8,
}  # fmt: skip
"""Bytes a parameter by the engine's method, where the method says it all."""

INT_METHODS = frozenset(
    {"awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16", "auto-round", "auto_round"}
)
EXPERTS_ONLY = {"mxfp4": MXFP4, "w4afp8": 0.5 + 2 / 128}
"""Methods that pack the routed experts in a format of their own."""

EXCLUSION_KEYS = ("exclude_modules", "ignore", "ignored_layers", "modules_to_not_convert")

SPELLINGS = {
    "mlp.experts": (
        "mlp.experts.0.gate_proj", "mlp.experts.0.up_proj", "block_sparse_moe.experts",
        "block_sparse_moe.experts.0.w1", "block_sparse_moe.experts.0.gate_proj", "ffn.experts",
        "feed_forward.experts",
    ),
    "mlp.shared_experts": (
        "mlp.shared_experts.gate_proj", "mlp.shared_expert", "mlp.shared_expert.gate_proj",
        "block_sparse_moe.shared_experts.gate_proj", "ffn.shared_experts",
        "feed_forward.shared_expert",
    ),
    "moe.experts": ("experts", "experts.0.gate_proj"),
    "mixer.experts": ("mixer.experts.0.up_proj",),
    "mixer.shared_experts": ("mixer.shared_experts.up_proj",),
    "self_attn.indexer.wq_b": ("self_attn.indexer",),
    "self_attn.qkv_proj": ("self_attn.q_proj",),
}  # fmt: skip
"""Names under which checkpoints list a part that stands for several modules."""

LAYERS = re.compile(r"^(.*?layers)\.(?:\d+|\*)")


@dataclass(frozen=True, slots=True)
class Scheme:
    """How many bytes a parameter of a module takes."""

    plain: float
    """Bytes of a parameter that is not quantised."""
    packed: float
    """Bytes of a quantised one."""
    experts: float | None = None
    """Bytes of a routed expert's parameter, where that differs."""
    table: Mapping[str, float] | None = None
    """Bytes by module, for checkpoints that list every module's format."""
    excluded: Callable[[str], object] | None = None
    prefix: str | None = None
    """Path of the layers as the lists spell it."""
    known: bool = True
    """False where the format is not known and was taken for plain."""

    def bytes_for(self, path: str, name: str, linear: bool, expert: bool) -> float:
        """Bytes of one parameter of the module `name` below `path`."""
        names = [path + name, *(path + one for one in SPELLINGS.get(name, ()))]
        if self.table is not None:
            return next((self.table[one] for one in names if one in self.table), self.plain)
        if not linear:
            return self.plain
        if self.excluded is not None and any(self.excluded(one) for one in names):
            return self.plain
        return self.experts if expert and self.experts is not None else self.packed


def _pattern(text: str) -> str:
    if text.startswith("re:"):
        return f"(?:{text[3:]}).*"
    return re.escape(text).replace(r"\*", ".*") + r"(?:\..*)?"


def matcher(patterns: Iterable[object]) -> Callable[[str], object] | None:
    """One test for a list of module names, wildcards and `re:` expressions."""
    words = [one for one in patterns if isinstance(one, str) and one]
    if not words:
        return None
    try:
        return re.compile("|".join(_pattern(one) for one in words)).fullmatch
    except re.error:
        literal = "|".join(re.escape(one) + ".*" for one in words)
        return re.compile(literal).fullmatch


def _listed(config: Mapping[str, Any]) -> list[object]:
    found: list[object] = []
    for key in EXCLUSION_KEYS:
        value = config.get(key)
        if isinstance(value, (list, tuple)):
            found += value
    dynamic = config.get("dynamic")
    if isinstance(dynamic, Mapping):
        found += ["re:" + key[2:] for key in dynamic if key.startswith("-:")]
    return found


def _prefix(names: Iterable[object]) -> str | None:
    for name in names:
        found = LAYERS.match(name) if isinstance(name, str) and name[:3] != "re:" else None
        if found is not None and "visual" not in found[1] and "vision" not in found[1]:
            return found[1]
    return None


def _int_bytes(config: Mapping[str, Any]) -> float:
    bits = config.get("bits", config.get("w_bit", 4))
    group = config.get("group_size", config.get("q_group_size", 128))
    bits = bits if isinstance(bits, int) and bits > 0 else 4
    group = group if isinstance(group, int) and group > 0 else 4096
    zeros = bool(config.get("zero_point", not config.get("sym", True)))
    return bits / 8 + (2 + (bits / 8 if zeros else 0)) / group


def _compressed_bytes(weights: Mapping[str, Any]) -> float:
    bits, kind = weights.get("num_bits", 8), weights.get("type", "int")
    group = weights.get("group_size") or 0
    bits = bits if isinstance(bits, int) else 8
    if kind == "float" and bits == 4:
        return NVFP4 if group == 16 else MXFP4
    scale = 2 / group if isinstance(group, int) and group > 0 else 0
    return bits / 8 + scale


def _compressed(config: Mapping[str, Any], plain: float) -> Scheme:
    """compressed-tensors: groups by target; unlisted modules stay plain."""
    groups = config.get("config_groups")
    values = list(groups.values()) if isinstance(groups, Mapping) else []
    excluded = _listed(config)
    targeted: list[tuple[Callable[[str], object] | None, float]] = []
    everything: float | None = None
    for group in values:
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            continue
        size = _compressed_bytes(weights)
        targets = group.get("targets") or ["Linear"]
        if "Linear" in targets or any(one == "FusedMoE" for one in targets):
            everything = size
        else:
            targeted.append((matcher(targets), size))
    if everything is not None or not targeted:
        return Scheme(plain, everything or plain, excluded=matcher(excluded),
                      prefix=_prefix(excluded))  # fmt: skip
    if len({size for _, size in targeted}) == 1:
        hit = [test for test, _ in targeted if test is not None]
        return Scheme(plain, targeted[0][1], prefix=_prefix(excluded),
                      excluded=lambda name: not any(test(name) for test in hit))  # fmt: skip
    return Scheme(plain, max(targeted, key=lambda one: one[1])[1],
                  min(size for _, size in targeted), excluded=matcher(excluded),
                  prefix=_prefix(excluded))  # fmt: skip


def _block_fp8(config: Mapping[str, Any]) -> float:
    block = config.get("weight_block_size")
    if isinstance(block, (list, tuple)) and len(block) == 2 and all(block):
        return FP8 + 4 / (int(block[0]) * int(block[1]))
    return FP8


def _side(model: ModelConfig) -> Mapping[str, Any]:
    side = model.checkpoint.quant_config
    nested = side.get("quantization") if isinstance(side, Mapping) else None
    return nested if isinstance(nested, Mapping) else {}


def packs_experts(model: ModelConfig) -> bool:
    """True where routed experts are MXFP4 beside FP8 layers.

    The engine looks into DeepSeek-V4's tensors to tell; of the public checkpoints those with FP4
    experts say so in config.json, and those without a word hold FP8.
    """
    if not model.is_fp4_experts:
        return False
    return not model.is_deepseek_v4_arch or model.hf_config.get("expert_dtype") == "fp4"


def scheme_of(model: ModelConfig) -> Scheme:
    """The scheme of a loaded checkpoint."""
    plain = DTYPE_BYTES.get(model.dtype, 2.0)
    method = model.quantization
    if not method:
        return Scheme(plain, plain)
    config, side = model.hf_quant_config, _side(model)
    listed = config.get("quantized_layers") or side.get("quantized_layers")
    if method == "modelopt_mixed" and isinstance(listed, Mapping):
        table = {
            name: ALGO_BYTES.get(str(one.get("quant_algo", "")).upper(), plain)
            for name, one in listed.items()
            if isinstance(one, Mapping)
        }
        return Scheme(plain, plain, table=table, prefix=_prefix(table))
    excluded = _listed(config) + _listed(side)
    test, prefix = matcher(excluded), _prefix(excluded)
    if method.startswith("compressed"):
        return _compressed(config, plain)
    if method in INT_METHODS:
        return Scheme(plain, _int_bytes(config), excluded=test, prefix=prefix)
    if method == "mxfp4" and config.get("quant_method") == "mxfp4":
        return Scheme(plain, plain, MXFP4, excluded=test, prefix=prefix)
    packed = METHOD_BYTES.get(method)
    if packed is None:
        return Scheme(plain, plain, known=False)
    if method in ("fp8", "w4afp8"):
        packed = _block_fp8(config)
    experts = EXPERTS_ONLY.get(method)
    if method == "mxfp4":
        experts = MXFP4
    if packs_experts(model):
        experts = MXFP4
    if getattr(model, "nvfp4_moe_meta", None):
        experts = NVFP4
    return Scheme(plain, packed, experts, excluded=test, prefix=prefix)
