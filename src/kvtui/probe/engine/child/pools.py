"""The question `pool`: the engine's own pool classes, built by its own configurator.

No weights are loaded: what the configurator asks of a loaded model (layer range, modules) is
answered by a stand-in made from the model's configuration.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
from types import SimpleNamespace
from typing import Any

from .built import buffers_of, called, start_decode_offload, takes_decode_offload, takes_hicache
from .questions import describe, raised_in_sglang, resolve_launch
from .release import is_mla, lone_rank, model_of, parallel_widths, reader_of

DEFAULT_TOKENS = 4096
DEFAULT_REQUESTS = 8
DEFAULT_STATE_SLOTS = 16


REFUSALS = (ValueError, AssertionError, RuntimeError, NotImplementedError)
"""What the engine raises on purpose; other errors are a stumble of its builder or of ours."""
NOT_ENOUGH_HERE = ("can't allocate memory", "out of memory", "byte budget")
"""Refusals that come of the small pool or the small machine, not of the launch."""


def pool(question: dict[str, Any], claim: dict[str, Any] | None) -> dict[str, Any]:
    """Resolve `argv`, then build its pools for `tokens` slots and describe them."""
    answer, arguments = resolve_launch(question)
    if arguments is None:
        return answer
    answer["stage"] = "pool"
    device = str(question.get("device") or "cpu")
    built: dict[str, Any] = {}
    answer["pool"] = built
    try:
        if device == "cpu":
            _zeros_for_packed_fp4()
            _no_kernels()
        with contextlib.redirect_stdout(io.StringIO()):
            pools = Builder(arguments, device, question).describe(built)
            if _wants_decode_offload(arguments) and not built["decode_offload"]:
                answer["stage"] = "offload"
                start_decode_offload(pools)
    except BaseException as error:
        if is_refusal(error):
            answer["accepted"] = False
            answer.update(describe(error))
        else:
            answer["pool_error"] = describe(error)
    else:
        answer["stage"] = "done"
    gc.collect()
    return answer


def _wants_decode_offload(arguments: Any) -> bool:
    read = reader_of(arguments)
    return bool(read("disaggregation_decode_enable_offload_kvcache"))


def is_refusal(error: BaseException) -> bool:
    """Whether an error is the engine's word on the launch, and not this program's failure."""
    if not isinstance(error, REFUSALS) or not raised_in_sglang(error):
        return False
    if "group is not initialized" in str(error):
        return False  # it asked for process groups, which only a running server has
    text = str(error).lower()
    return not any(words in text for words in NOT_ENOUGH_HERE)


class UnpreparedError(Exception):
    """What a server does before it builds pools could not be done here."""


class Builder:
    """Walks the engine's own way from resolved arguments to pools."""

    def __init__(self, arguments: Any, device: str, question: dict[str, Any]) -> None:
        self.arguments = arguments
        self.device = device
        self.tokens = int(question.get("tokens") or DEFAULT_TOKENS)
        self.requests = int(question.get("max_running_requests") or DEFAULT_REQUESTS)
        self.slots = int(question.get("mamba_slots") or DEFAULT_STATE_SLOTS)
        self.budgets = [int(b) for b in question.get("budget_bytes") or ()]

    def describe(self, out: dict[str, Any]) -> Any:
        """Fill `out` step by step, so that a failure keeps what was found before it.

        Returns the engine's own record of its pools.
        """
        from sglang.srt.runtime_context import publish

        with contextlib.ExitStack() as stack:
            try:
                publish(self.arguments, role="scheduler")
                stack.enter_context(parallel_widths(self.arguments))
            except Exception as error:
                raise UnpreparedError(f"{type(error).__name__}: {error}") from error
            return self._build(out)

    def _build(self, out: dict[str, Any]) -> Any:
        from sglang.srt.configs.hybrid_arch import mambaish_config
        from sglang.srt.model_executor.pool_configurator import create_memory_pool_configurator
        from sglang.srt.runtime_context import get_context

        model = model_of(self.arguments)
        read = reader_of(self.arguments)
        page_size = read("page_size")
        owner = self._configurator(model, page_size)
        out["kv_dtype"] = str(owner.kv_cache_dtype).removeprefix("torch.")
        configurator = create_memory_pool_configurator(owner)
        out["configurator"] = type(configurator).__name__
        out["bytes_per_token"] = int(getattr(configurator, "_cell_size", 0) or 0)
        out["capacity"] = [self._capacity(configurator, b, page_size) for b in self.budgets]
        config = configurator.calculate_pool_sizes_from_max_tokens(self.tokens, page_size)
        config.max_running_requests = self.requests
        if mambaish_config(model) is not None and read("max_mamba_cache_size") is None:
            get_context().override("kvtui", max_mamba_cache_size=self.slots)
        config = configurator.finalize_with_max_running_requests(config)
        sizes = owner._derive_pool_sizes(config=config)
        pools = owner._init_pools(
            sizes=sizes, req_to_token_pool=None, token_to_kv_pool_allocator=None
        )
        kv_pool = pools.token_to_kv_pool
        out["class"] = type(kv_pool).__name__
        out["allocator"] = type(pools.token_to_kv_pool_allocator).__name__
        out["req_pool"] = type(pools.req_to_token_pool).__name__
        out["tokens"] = int(sizes.max_total_num_tokens)
        out["buffers"] = buffers_of(kv_pool)
        out["bytes"] = sum(row["bytes"] for row in out["buffers"])
        out["decode_offload"] = takes_decode_offload(kv_pool)
        out["hicache"] = takes_hicache(kv_pool)
        return pools

    def _configurator(self, model: Any, page_size: int) -> Any:
        from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
        from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        read = reader_of(self.arguments)
        asked = read("kv_cache_dtype")
        name, dtype = called(
            configure_kv_cache_dtype,
            server_args_kv_cache_dtype=asked,
            model=None,
            model_dtype=model.dtype,
            is_draft_worker=False,
            is_dflash=False,
            speculative_draft_attention_backend=read("speculative_draft_attention_backend"),
        )
        algorithm = read("speculative_algorithm")
        return _built(
            KVCacheConfigurator,
            device=self.device,
            gpu_id=0,
            attn_dp_size=1,
            pp_size=1,
            ps=lone_rank(),
            pp_group=SimpleNamespace(world_size=1, rank_in_group=0),
            model=_stand_in(model),
            model_config=model,
            server_args=self.arguments,
            kv_cache_dtype=dtype,
            model_dtype=model.dtype,
            page_size=page_size,
            sliding_window_size=model.sliding_window_size,
            spec_algorithm=SpeculativeAlgorithm.from_string(algorithm),
            is_draft_worker=False,
            post_capture_kv_active=False,
            spec_aux_config=_no_draft(),
            draft_parallel_layout=None,
            is_hybrid_swa=model.is_hybrid_swa,
            is_hybrid_swa_compress=getattr(model, "is_hybrid_swa_compress", False),
            use_mla_backend=is_mla(self.arguments),
            layer_info=_layers(model),
            forward_stream=None,
            req_to_token_pool=None,
            token_to_kv_pool_allocator=None,
            memory_pool_config=None,
            kv_cache_dtype_str=asked if name is None else name,
        )

    def _capacity(self, configurator: Any, budget: int, page_size: int) -> dict[str, Any]:
        try:
            sizes = configurator.calculate_pool_sizes(budget, page_size)
        except Exception as error:
            return {"budget_bytes": budget, **describe(error)}
        found = {key: value for key, value in vars(sizes).items() if isinstance(value, int)}
        return {"budget_bytes": budget, **found}


def _built(kind: Any, **words: Any) -> Any:
    """A record with those fields that this release's class has; fields new to us are None."""
    fields = [field for field in dataclasses.fields(kind) if field.init]
    required = {
        field.name: None
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    names = {field.name for field in fields}
    return kind(**required | {name: value for name, value in words.items() if name in names})


def _no_draft() -> SimpleNamespace:
    """What the configurator asks of every launch about its draft model: nothing is known.

    Whatever else it asks is an error of this program, and so no verdict on the launch: with empty
    answers it would refuse drafts that it has not seen.
    """
    return SimpleNamespace(
        eagle_draft_num_layers=None, dflash_draft_num_layers=None, draft_model_config=None
    )


def _layers(model: Any) -> SimpleNamespace:
    count = model.num_hidden_layers
    return SimpleNamespace(
        start_layer=0,
        end_layer=count,
        num_effective_layers=count,
        model_num_layers=count,
        loop_num=1,
        is_hybrid_swa_mtp_draft=False,
        swa_attention_layer_ids=list(getattr(model, "swa_attention_layer_ids", None) or ()),
        full_attention_layer_ids=list(getattr(model, "full_attention_layer_ids", None) or ()),
    )


def _stand_in(model: Any) -> SimpleNamespace:
    """What the configurator asks of a loaded model: no layers, no modules, the layer range."""
    inner = SimpleNamespace(layers=[], start_layer=0, end_layer=model.num_hidden_layers)
    return SimpleNamespace(
        quant_config=None,
        model=inner,
        modules=tuple,
        named_modules=tuple,
        named_parameters=tuple,
    )


def _zeros_for_packed_fp4() -> None:
    """The CPU can't fill packed fp4 with zeros: make bytes and view them."""
    import torch

    plain = torch.zeros
    if not hasattr(torch, "float4_e2m1fn_x2"):
        return
    packed = torch.float4_e2m1fn_x2

    def zeros(*shape: Any, **options: Any) -> Any:
        if options.get("dtype") is packed:
            return plain(*shape, **{**options, "dtype": torch.uint8}).view(options["dtype"])
        return plain(*shape, **options)

    torch.zeros = zeros


def _no_kernels() -> None:
    """Pools on the CPU must not warm their copy kernel up, which wants a real driver."""
    try:
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
    except ImportError:
        return
    if hasattr(MHATokenToKVPool, "_init_kv_copy_and_warmup"):
        MHATokenToKVPool._init_kv_copy_and_warmup = lambda self: None
