"""Pool class, layout and price of a token by model family, against figures of the engine."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kvtui.core.evaluate import evaluate
from kvtui.core.pools.spec import PoolPlan
from kvtui.core.resolution import Sizing
from tests.support import draft_of, facts_for


def plan_of(argv: str, gpu: str = "a100-80", tokens: int = 4096, slots: int = 16) -> PoolPlan:
    """The pool of a launch that is sized as the engine's own was, for eight requests."""
    draft = draft_of(argv, gpu=gpu)
    report = evaluate(draft, facts_for(draft), Sizing(tokens, slots, 8))
    assert report.pool is not None, report.unknowns
    return report.pool


def rows(plan: PoolPlan) -> list[tuple[str, tuple[int, ...], int]]:
    """(dtype, shape, count) of what the plan lists."""
    return [(one.dtype, tuple(one.shape), one.count) for one in plan.buffers]


@dataclass(frozen=True)
class Seen:
    """What SGLang 0.5.23 built for a launch."""

    argv: str
    class_name: str
    bytes_per_token: float
    buffers: tuple[tuple[str, tuple[int, ...], int], ...]
    gpu: str = "a100-80"


ENGINE = (
    Seen("--model-path Qwen/Qwen3-8B", "MHATokenToKVPool", 147456,
         (("bfloat16", (4097, 8, 128), 36),) * 2),
    Seen("--model-path meta-llama/Meta-Llama-3.1-70B --tp-size 8", "MHATokenToKVPool", 40960,
         (("bfloat16", (4097, 1, 128), 80),) * 2),
    Seen("--model-path deepseek-ai/DeepSeek-V3 --tp-size 8", "MLATokenToKVPool", 70272,
         (("bfloat16", (4097, 1, 576), 61),)),
    Seen("--model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8", "DSATokenToKVPool", 78324,
         (("bfloat16", (4160, 1, 576), 61), ("uint8", (65, 8448), 61))),
    Seen("--model-path openai/gpt-oss-20b --tp-size 2", "SWAKVPool", 22118,
         (("float16", (4097, 4, 64), 12), ("float16", (3277, 4, 64), 12)) * 2),
    Seen("--model-path XiaomiMiMo/MiMo-V2-Flash --tp-size 8", "SWAKVPool", 25728,
         (("bfloat16", (4097, 1, 192), 9), ("bfloat16", (4097, 1, 128), 9),
          ("bfloat16", (3277, 1, 192), 39), ("bfloat16", (3277, 1, 128), 39))),
    Seen("--model-path Qwen/Qwen3.5-27B", "HybridLinearKVPool", 65536,
         (("bfloat16", (48, 17, 10240, 3), 1), ("float32", (48, 17, 48, 128, 128), 1),
          ("bfloat16", (4097, 4, 256), 16), ("bfloat16", (4097, 4, 256), 16))),
    Seen("--model-path nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "HybridLinearKVPool", 6144,
         (("bfloat16", (23, 17, 6144, 3), 1), ("float32", (23, 17, 64, 64, 128), 1),
          ("bfloat16", (4097, 2, 128), 6), ("bfloat16", (4097, 2, 128), 6))),
    Seen("--model-path Qwen/Qwen3-8B --tp-size 2 --kv-cache-dtype mxfp8 --page-size 16",
         "MHATokenToKVPoolMXFP8", 38016,
         (("float8_e4m3fn", (4112, 4, 128), 36), ("float8_e8m0fnu", (4112, 4, 4), 36)) * 2,
         "b200"),
)  # fmt: skip


@pytest.mark.parametrize("seen", ENGINE, ids=lambda one: one.argv.split("/")[1][:40])
def test_plan_is_the_engines(seen: Seen) -> None:
    plan = plan_of(seen.argv, seen.gpu)
    assert plan.class_name == seen.class_name
    assert plan.bytes_per_token == seen.bytes_per_token
    assert sorted(_spread(rows(plan))) == sorted(_spread(seen.buffers))


def _spread(
    listed: list[tuple[str, tuple[int, ...], int]] | tuple[tuple[str, tuple[int, ...], int], ...],
) -> list[tuple[str, tuple[int, ...]]]:
    return [(dtype, shape) for dtype, shape, count in listed for _ in range(count)]


@pytest.mark.parametrize(
    ("argv", "gpu", "name"),
    [
        ("--model-path openai/gpt-oss-20b --enable-unified-memory", "h100", "UnifiedSWAKVPool"),
        ("--model-path Qwen/Qwen3.5-27B --enable-unified-memory", "h100",
         "UnifiedHybridLinearKVPool"),
        ("--model-path openai/gpt-oss-20b --disable-hybrid-swa-memory", "h100",
         "MHATokenToKVPool"),
        ("--model-path deepseek-ai/DeepSeek-V4-Flash --tp-size 4", "h200",
         "DeepSeekV4TokenToKVPool"),
        ("--model-path deepseek-ai/DeepSeek-V3 --tp-size 8 --kv-cache-dtype nvfp4", "b200",
         "MLATokenToKVPoolFP4"),
        ("--model-path Qwen/Qwen3-8B --is-embedding --prefill-only-disable-kv-cache"
         " --chunked-prefill-size -1 --disable-radix-cache", "h100", "NoOpMHATokenToKVPool"),
    ],
)  # fmt: skip
def test_class_of_a_family(argv: str, gpu: str, name: str) -> None:
    assert plan_of(argv, gpu).class_name == name


def test_heads_split_down_to_one() -> None:
    for tp, heads in ((1, 8), (2, 4), (8, 1), (16, 1)):
        plan = plan_of(f"--model-path Qwen/Qwen3-8B --tp-size {tp}")
        assert plan.buffers[0].shape == (4097, heads, 128)


def test_attention_groups_keep_more_heads() -> None:
    plan = plan_of("--model-path Qwen/Qwen3-30B-A3B --tp-size 4 --attn-dp-size 4", "h100")
    assert plan.buffers[0].shape[1] == 4


def test_latents_are_not_split() -> None:
    prices = {
        plan_of(f"--model-path deepseek-ai/DeepSeek-V3 --tp-size {tp}", "h200").bytes_per_token
        for tp in (1, 8, 16)
    }
    assert len(prices) == 1


def test_first_pipeline_stage_holds_its_layers() -> None:
    plan = plan_of("--model-path Qwen/Qwen3-8B --pp-size 2", "h100")
    assert {one.count for one in plan.buffers} == {18}
    assert any("stages" in note for note in plan.notes)


@pytest.mark.parametrize("page", [1, 16, 64])
def test_pool_has_a_page_of_padding(page: int) -> None:
    plan = plan_of(f"--model-path Qwen/Qwen3-8B --attention-backend triton --page-size {page}")
    assert plan.buffers[0].shape[0] == 4096 + page
    assert plan.page_size == page


def test_fp8_halves_the_price() -> None:
    plain = plan_of("--model-path Qwen/Qwen3-8B", "h100")
    fp8 = plan_of("--model-path Qwen/Qwen3-8B --kv-cache-dtype fp8_e4m3", "h100")
    assert fp8.bytes_per_token * 2 == plain.bytes_per_token
    assert fp8.buffers[0].shape == plain.buffers[0].shape


def test_sliding_pool_follows_its_ratio() -> None:
    plan = plan_of(
        "--model-path openai/gpt-oss-20b --swa-full-tokens-ratio 0.25", "h100", tokens=8192
    )
    sizes = {one.role: one.slots for one in plan.sub_pools}
    assert sizes["swa"] == sizes["full"] // 4


@pytest.mark.parametrize(
    ("argv", "gpu"),
    [
        ("--model-path Qwen/Qwen3-8B", "h100"),
        ("--model-path Qwen/Qwen3-8B --kv-cache-dtype mxfp8", "b200"),
        ("--model-path deepseek-ai/DeepSeek-V3 --tp-size 8", "h200"),
    ],
)
def test_a_pool_takes_its_price_for_tokens_and_padding(argv: str, gpu: str) -> None:
    plan = plan_of(argv, gpu)
    stored = sum(one.nbytes for pool in plan.sub_pools if pool.listed for one in pool.buffers)
    assert stored == plan.bytes_per_token * (plan.tokens + plan.page_size)


OFFLOAD = (
    "--disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache"
    " --hicache-storage-backend mooncake"
)


@pytest.mark.parametrize(
    ("argv", "gpu", "works"),
    [
        ("--model-path Qwen/Qwen3-8B", "h100", True),
        ("--model-path deepseek-ai/DeepSeek-V3 --tp-size 8", "h200", True),
        ("--model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8", "h200", True),
        ("--model-path openai/gpt-oss-20b", "h100", False),
        ("--model-path openai/gpt-oss-20b --enable-unified-memory", "h100", True),
        ("--model-path openai/gpt-oss-20b --disable-hybrid-swa-memory", "h100", True),
        ("--model-path Qwen/Qwen3.5-27B", "h100", False),
        ("--model-path deepseek-ai/DeepSeek-V4-Flash --tp-size 4", "h200", False),
    ],
)
def test_decode_offload_names_the_pool(argv: str, gpu: str, works: bool) -> None:
    draft = draft_of(f"{argv} {OFFLOAD}", gpu=gpu)
    report = evaluate(draft, facts_for(draft))
    found = [f for f in report.findings if f.rule == "KV780"]
    assert bool(found) is not works
    assert report.pool is not None
    assert report.pool.decode_offload is works
    if found:
        assert report.pool.class_name in found[0].message
