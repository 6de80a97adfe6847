"""Layers that keep a fixed state per request instead of a KV cache (Mamba, GDN, KDA, conv …).

Mirrors `srt/configs/hybrid_arch.py`, `mamba_utils.py` and the `mamba2_cache_params` of each
configuration class of 0.5.23.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from kvtui.core.model.hf import HfConfig
from kvtui.core.pools.spec import ITEM_BITS

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution

STATE_DTYPES = ("float32", "bfloat16", "float16")

ATTENTION_TYPES = ("full_attention", "qwen_sparse_attention", "indexed_attention", "attention")


@dataclass(frozen=True, slots=True)
class StateShape:
    """State tensors of one layer and one request on one rank."""

    conv: tuple[tuple[int, int], ...]
    """Convolution windows; (channels, window) or, for KDA and short convs, (window, channels)."""
    temporal: tuple[int, int, int]
    """(heads, head_dim, state_size)."""
    k_heads: int = 1
    """Key heads a rank, which sizes the ReplaySSM ring."""
    conv_window_first: bool = False
    """True where the window is the first axis, which rules out window sharing."""


@dataclass(frozen=True, slots=True)
class LinearState:
    """State of all such layers on one rank, with its dtypes."""

    shape: StateShape
    layers: int
    conv_dtype: str
    temporal_dtype: str
    is_kda: bool

    @property
    def conv_bytes_per_layer(self) -> int:
        """Bytes of the convolution windows of one layer and request."""
        return sum(prod(one) for one in self.shape.conv) * ITEM_BITS[self.conv_dtype] // 8

    @property
    def temporal_bytes_per_layer(self) -> int:
        """Bytes of the recurrent state of one layer and request."""
        return prod(self.shape.temporal) * ITEM_BITS[self.temporal_dtype] // 8

    @property
    def bytes_per_request(self) -> int:
        """The engine's `mamba_cache_per_req`: all layers, one request, one rank."""
        return (self.conv_bytes_per_layer + self.temporal_bytes_per_layer) * self.layers

    def replay_ring_bytes(self, records: int) -> int:
        """Bytes of the ReplaySSM scratch of one request that holds `records` steps."""
        heads, v_dim, k_dim = self.shape.temporal
        conv = ITEM_BITS[self.conv_dtype] // 8
        values, keys = heads * records * v_dim, self.shape.k_heads * records * k_dim
        if self.is_kda:
            per_layer = 2 * (values + keys) * conv + 4 * (heads * records + heads * records * k_dim)
        else:
            copies = 1 if self.conv_dtype == "float32" else 2
            per_layer = copies * (values + keys) * conv + 4 * heads * records
        return per_layer * self.layers


@dataclass(frozen=True, slots=True)
class Mambaish:
    """The recurrent side of a hybrid model."""

    kind: str
    """mamba2 | mamba1 | gdn | kda | lightning | shortconv."""
    layer_ids: tuple[int, ...]
    full_attention_layer_ids: tuple[int, ...]
    shape_of: Callable[[int], StateShape]
    """State shape of one layer for a width over which heads are split."""
    ssm_dtype: str = "float32"
    """Recurrent dtype that the checkpoint states."""
    fixed_dtype: str | None = None
    """Set where the class ignores both switches (Inkling)."""
    chunk_size: int = 0
    """The class's `mamba_chunk_size`; 0 where it has none."""
    width: str = "attn_tp"
    """Which group splits the heads: attn_tp | tp | linear (attn_tp, or tp under CP-TP sharing)."""
    split_units: tuple[tuple[str, int], ...] = ()
    """Named counts that the width must divide, or the engine stops when it builds the pool."""

    def state(
        self, width: int, *, ssm_dtype: str | None = None, conv_dtype: str = "bfloat16"
    ) -> LinearState:
        """The state on one rank of `width`; unknown dtype words fall back as the engine's do."""
        temporal = ssm_dtype if ssm_dtype in STATE_DTYPES else self.ssm_dtype
        conv = conv_dtype if conv_dtype in STATE_DTYPES else "bfloat16"
        return LinearState(
            self.shape_of(width),
            len(self.layer_ids),
            self.fixed_dtype or conv,
            self.fixed_dtype or temporal,
            self.kind == "kda",
        )

    def indivisible(self, width: int) -> tuple[str, int] | None:
        """The first count that `width` does not divide, or None."""
        return next((unit for unit in self.split_units if unit[1] % width), None)


def linear_width(r: Resolution, mambaish: Mambaish) -> int:
    """Ranks over which the recurrent heads are split under the launch's options."""
    from kvtui.core.derived import attn_tp_size

    shared = mambaish.width == "linear" and r.enable_cp_tp_group_sharing
    return int(r.tp_size) if shared or mambaish.width == "tp" else attn_tp_size(r)


def linear_state(r: Resolution) -> LinearState | None:
    """The state per request under the launch's options, or None for a model without one."""
    mambaish = r.model.mambaish
    if mambaish is None:
        return None
    found: LinearState = mambaish.state(
        linear_width(r, mambaish),
        ssm_dtype=r.mamba_ssm_dtype or r.env.get("SGLANG_MAMBA_SSM_DTYPE"),
        conv_dtype=r.env.get("SGLANG_MAMBA_CONV_DTYPE", "bfloat16"),
    )
    return found


def _mamba2_shape(
    *, inner: int, groups: int, heads: int, head_dim: int, state: int, kernel: int
) -> Callable[[int], StateShape]:
    def shape(width: int) -> StateShape:
        spread = groups if groups % width == 0 else width
        conv = (inner + 2 * spread * state) // width
        return StateShape(
            ((conv, kernel - 1),), (heads // width, head_dim, state), -(-groups // width)
        )

    return shape


def _units(heads: int, inner: int) -> tuple[tuple[str, int], ...]:
    return (("state heads", heads), ("inner channels", inner))


def _ssm_dtype(config: HfConfig) -> str:
    text = config.get("text_config")
    stated = (
        text.get("mamba_ssm_dtype")
        if isinstance(text, HfConfig) and "mamba_ssm_dtype" in text
        else config.get("mamba_ssm_dtype")
    )
    return stated if stated in STATE_DTYPES else "float32"


def _by_types(config: HfConfig, wanted: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(i for i, kind in enumerate(config.get("layer_types") or ()) if kind in wanted)


def gdn_layers(config: HfConfig) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(linear, full) layer ids of a Qwen3-Next-like text configuration."""
    count = int(config.num_hidden_layers)
    types = config.get("layer_types") if config.get("model_type") == "qwen4_exp_text" else None
    if types is not None:
        full = tuple(i for i, kind in enumerate(types) if kind in ATTENTION_TYPES)
        linear = tuple(i for i, kind in enumerate(types) if kind == "linear_attention")
        return linear, full
    interval = int(config.get("full_attention_interval", 4))
    full = tuple(i for i in range(count) if (i + 1) % interval == 0)
    return tuple(i for i in range(count) if (i + 1) % interval), full


def _gdn(config: HfConfig) -> Mambaish:
    k_dim, v_dim = int(config.linear_key_head_dim), int(config.linear_value_head_dim)
    k_heads, v_heads = int(config.linear_num_key_heads), int(config.linear_num_value_heads)
    linear, full = gdn_layers(config)
    return Mambaish(
        "gdn",
        linear,
        full,
        _mamba2_shape(
            inner=v_dim * v_heads,
            groups=k_heads,
            heads=v_heads,
            head_dim=v_dim,
            state=k_dim,
            kernel=int(config.linear_conv_kernel_dim),
        ),
        _ssm_dtype(config),
        width="linear",
        split_units=_units(v_heads, v_dim * v_heads),
    )


def _gigachat(config: HfConfig) -> Mambaish:
    count = int(config.num_hidden_layers)
    full_list = config.get("full_attention_layers") or ()
    types = config.get("layer_types") or [
        "full_attention" if i in full_list else "linear_attention" for i in range(count)
    ]
    base = _gdn(config)
    linear = tuple(i for i, kind in enumerate(types) if kind == "linear_attention")
    full = tuple(i for i, kind in enumerate(types) if kind != "linear_attention")
    return Mambaish(
        "gdn", linear, full, base.shape_of, base.ssm_dtype, split_units=base.split_units
    )


def _jet(config: HfConfig) -> Mambaish:
    block = config.efficient_attention_config["jet"]
    heads, k_dim = int(block["num_heads"]), int(block["head_dim"])
    v_dim = int(k_dim * block["expand_v"])
    return Mambaish(
        "gdn",
        _by_types(config, ("jet",)),
        _by_types(config, ("attn", "swa")),
        _mamba2_shape(
            inner=heads * v_dim,
            groups=heads,
            heads=heads,
            head_dim=v_dim,
            state=k_dim,
            kernel=int(block["conv_size"]),
        ),
        _ssm_dtype(config),
        split_units=_units(heads, heads * v_dim),
    )


def _nemotron_h(config: HfConfig) -> Mambaish:
    pattern = config.hybrid_override_pattern
    heads, head_dim = int(config.mamba_num_heads), int(config.mamba_head_dim)
    return Mambaish(
        "mamba2",
        tuple(i for i, kind in enumerate(pattern) if kind == "M"),
        tuple(i for i, kind in enumerate(pattern) if kind == "*"),
        _mamba2_shape(
            inner=heads * head_dim,
            groups=int(config.n_groups),
            heads=heads,
            head_dim=head_dim,
            state=int(config.ssm_state_size),
            kernel=int(config.conv_kernel),
        ),
        _ssm_dtype(config),
        chunk_size=int(config.get("mamba_chunk_size") or 0),
        split_units=_units(heads, heads * head_dim),
    )


def _falcon_h1(config: HfConfig) -> Mambaish:
    every = tuple(range(int(config.num_hidden_layers)))
    inner = config.get("mamba_d_ssm") or int(config.mamba_expand * config.hidden_size)
    heads = int(config.mamba_n_heads)
    head_dim = config.mamba_d_head
    return Mambaish(
        "mamba2",
        every,
        every,
        _mamba2_shape(
            inner=int(inner),
            groups=int(config.mamba_n_groups),
            heads=heads,
            head_dim=int(inner) // heads if head_dim == "auto" else int(head_dim),
            state=int(config.mamba_d_state),
            kernel=int(config.mamba_d_conv),
        ),
        _ssm_dtype(config),
        chunk_size=int(config.get("mamba_chunk_size") or 0),
        split_units=_units(heads, int(inner)),
    )


def _granite(config: HfConfig) -> Mambaish | None:
    layers = _by_types(config, ("mamba",))
    if not layers:
        return None
    inner = int(config.mamba_expand * config.hidden_size)
    heads = int(config.mamba_n_heads)
    head_dim = config.mamba_d_head
    return Mambaish(
        "mamba2",
        layers,
        _by_types(config, ("attention", "full_attention")),
        _mamba2_shape(
            inner=inner,
            groups=int(config.mamba_n_groups),
            heads=heads,
            head_dim=inner // heads if head_dim == "auto" else int(head_dim),
            state=int(config.mamba_d_state),
            kernel=int(config.mamba_d_conv),
        ),
        chunk_size=int(config.get("mamba_chunk_size") or 0),
        split_units=_units(heads, inner),
    )


def _mamba2_pure(config: HfConfig) -> Mambaish:
    heads, inner = int(config.num_heads), int(config.intermediate_size)
    return Mambaish(
        "mamba2",
        tuple(range(int(config.num_hidden_layers))),
        (),
        _mamba2_shape(
            inner=inner,
            groups=int(config.n_groups),
            heads=heads,
            head_dim=int(config.head_dim),
            state=int(config.state_size),
            kernel=int(config.conv_kernel),
        ),
        chunk_size=int(config.get("chunk_size") or 0),
        width="tp",
        split_units=_units(heads, inner),
    )


MAMBA1_CHUNK = 256


def _mamba1(config: HfConfig) -> Mambaish:
    inner, state = int(config.intermediate_size), int(config.state_size)
    kernel = int(config.conv_kernel)

    def shape(width: int) -> StateShape:
        return StateShape(((inner // width, kernel - 1),), (inner // width, 1, state))

    return Mambaish(
        "mamba1",
        tuple(range(int(config.num_hidden_layers))),
        (),
        shape,
        chunk_size=MAMBA1_CHUNK,
        width="tp",
        split_units=(("inner channels", inner),),
    )


def _short_conv(config: HfConfig, dtype: str) -> Mambaish | None:
    layers = _by_types(config, ("conv", "short_conv"))
    if not layers:
        return None
    hidden, kernel = int(config.hidden_size), int(config.conv_L_cache)

    def shape(width: int) -> StateShape:
        return StateShape(((hidden // width, kernel - 1),), (1, hidden, 0))

    return Mambaish(
        "shortconv",
        layers,
        _by_types(config, ("full_attention",)),
        shape,
        dtype,
        chunk_size=1,
        split_units=(("channels", hidden),),
    )


def _zaya(config: HfConfig) -> Mambaish | None:
    marks = config.get("zaya_layers")
    count = int(config.num_hidden_layers)
    layers = tuple(
        i
        for i in range(len(marks) if marks else count)
        if (marks[i] == "a" if marks else i % 2 == 0)
    )
    if not layers:
        return None
    heads = int(config.num_attention_heads) + int(config.num_key_value_heads)
    channels = heads * int(config.head_dim)
    padding = int(config.cca_time0) + int(config.cca_time1) - 2
    hidden = int(config.hidden_size)

    def shape(width: int) -> StateShape:
        return StateShape(((channels // width, padding), (hidden, 1)), (1, 1, 0))

    return Mambaish(
        "shortconv",
        layers,
        layers,
        shape,
        _ssm_dtype(config),
        chunk_size=1,
        width="tp",
        split_units=(("CCA channels", channels),),
    )


def _inkling(config: HfConfig) -> Mambaish:
    every = tuple(range(int(config.num_hidden_layers)))
    kv, dim = int(config.num_key_value_heads), int(config.head_dim)
    swa_kv, swa_dim = int(config.swa_num_key_value_heads), int(config.swa_head_dim)
    window, hidden = int(config.sconv_kernel_size) - 1, int(config.hidden_size)

    def shape(width: int) -> StateShape:
        full = (window, max(1, kv // width) * dim)
        local = (window, max(1, swa_kv // width) * swa_dim)
        stream = (window, hidden)
        return StateShape(
            (full, full, local, local, stream, stream), (0, 0, 0), conv_window_first=True
        )

    return Mambaish("shortconv", every, every, shape, fixed_dtype="bfloat16", chunk_size=64)


def _kda_shape(heads: int, head_dim: int, kernel: int) -> Callable[[int], StateShape]:
    def shape(width: int) -> StateShape:
        channels = heads * head_dim // width
        return StateShape(
            ((kernel - 1, 3 * channels),),
            (heads // width, head_dim, head_dim),
            -(-heads // width),
            conv_window_first=True,
        )

    return shape


def _kda(config: HfConfig, first: int, width: str) -> Mambaish:
    """KDA layers from `linear_attn_config`; `first` is the number of the first layer there."""
    linear = config.linear_attn_config
    numbers = frozenset(linear["kda_layers"])
    heads, head_dim = int(linear["num_heads"]), int(linear["head_dim"])
    every = range(int(config.num_hidden_layers))
    return Mambaish(
        "kda",
        tuple(i for i in every if i + first in numbers),
        tuple(i for i in every if i + first not in numbers),
        _kda_shape(heads, head_dim, int(linear["short_conv_kernel_size"])),
        width=width,
        split_units=_units(heads, heads * head_dim),
    )


def _bailing_layers(config: HfConfig) -> tuple[tuple[int, ...], tuple[int, ...]]:
    every = range(int(config.num_hidden_layers))
    group = config.layer_group_size
    if isinstance(group, int):
        full = frozenset(i for i in every if (i + 1) % group == 0)
    else:
        full = frozenset(i for i in every if group[i] != 1)
    return tuple(i for i in every if i not in full), tuple(sorted(full))


def _bailing(config: HfConfig) -> Mambaish:
    linear, full = _bailing_layers(config)
    heads, head_dim = int(config.num_attention_heads), int(config.head_dim)
    if config.get("short_conv_kernel_size") is not None:
        shape = _kda_shape(heads, head_dim, int(config.short_conv_kernel_size))
        return Mambaish("kda", linear, full, shape, split_units=_units(heads, heads * head_dim))
    return Mambaish(
        "lightning",
        linear,
        full,
        _mamba2_shape(inner=0, groups=0, heads=heads, head_dim=head_dim, state=head_dim, kernel=1),
        split_units=(("state heads", heads),),
    )


MIXERS = {"minicpm4": "minicpm4", "lightning": "lightning-attn", "lightning-attn": "lightning-attn"}


def _minicpm(config: HfConfig) -> Mambaish | None:
    mixers = [MIXERS.get(one, one) for one in config.get("mixer_types") or ("minicpm4",)]
    count = int(config.num_hidden_layers)
    kinds = (mixers * -(-count // len(mixers)))[:count]
    layers = tuple(i for i, kind in enumerate(kinds) if kind == "lightning-attn")
    heads = config.get("lightning_nkv") or config.num_key_value_heads
    head_dim = config.get("lightning_head_dim") or config.head_dim
    if not layers or not heads or not head_dim:
        return None
    return Mambaish(
        "lightning",
        layers,
        tuple(i for i, kind in enumerate(kinds) if kind == "minicpm4"),
        _mamba2_shape(
            inner=0,
            groups=0,
            heads=int(heads),
            head_dim=int(head_dim),
            state=int(head_dim),
            kernel=1,
        ),
        split_units=(("state heads", int(heads)),),
    )


GDN_TYPES = frozenset(
    {
        "qwen3_next",
        "qwen3_5_text",
        "qwen3_5_moe_text",
        "interns2_mobius_text",
        "qwen4_exp_text",
    }
)

ROOT_BUILDERS: Mapping[str, Callable[[HfConfig], Mambaish | None]] = {
    "falcon_h1": _falcon_h1,
    "nemotron_h": _nemotron_h,
    "nemotron_h_puzzle": _nemotron_h,
    "lfm2": lambda config: _short_conv(config, _ssm_dtype(config)),
    "lfm2_moe": lambda config: _short_conv(config, "float32"),
    "lfm2_vl": lambda config: _short_conv(config.text_config, "float32"),
    "zaya": _zaya,
    "mamba2": _mamba2_pure,
    "mamba": _mamba1,
    "falcon_mamba": _mamba1,
    "inkling_model": _inkling,
    "inkling_mm_model": lambda config: _inkling(config.text_config),
    "NemotronH_Nano_VL_V2": lambda config: _nemotron_h(config.llm_config),
    "NemotronH_Nano_Omni_Reasoning_V3": lambda config: _nemotron_h(config.llm_config),
    "nemotron_h_omni": lambda config: _nemotron_h(config.llm_config),
    "granitemoehybrid": _granite,
    "kimi_linear": lambda config: _kda(config, 1, "attn_tp"),
    "bailing_hybrid": _bailing,
    "minicpm_sala": _minicpm,
    "gigachat3_5": _gigachat,
}
"""State builders by the model type of the whole configuration."""


def _nested(hf_config: HfConfig, text: HfConfig, is_draft: bool) -> Mambaish | None:
    kind = text.get("model_type")
    if kind in GDN_TYPES:
        return _gdn(text)
    if kind == "jet_nemotron":
        return _jet(text)
    if kind == "kimi_linear":
        return _kda(text, 1, "attn_tp")
    if hf_config.get("model_type") == "glm5_next" and not is_draft:
        return _kda(text, 0, "linear")
    if kind == "bailing_hybrid" and text.get("short_conv_kernel_size") is not None:
        return _bailing(text)
    return None


def mambaish_of(hf_config: HfConfig, hf_text_config: HfConfig, is_draft: bool) -> Mambaish | None:
    """The recurrent side of the configuration, or None where every layer has a KV cache."""
    kind: Any = hf_config.get("model_type")
    if is_draft and kind in ("nemotron_h", "nemotron_h_puzzle"):
        pattern = hf_config.get("mtp_hybrid_override_pattern")
        if pattern is not None and "M" not in pattern:
            return None
    build = ROOT_BUILDERS.get(kind)
    if build is not None:
        return build(hf_config)
    return _nested(hf_config, hf_text_config, is_draft)
