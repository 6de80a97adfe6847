"""KV offload on a PD decode server: its conditions, its stride and its store's configuration."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.hicache_config import OBJECT_FIX, read_json
from kvtui.core.steps.kv_cache_common import number

HOOK = "arg_groups/kv_cache_hook.py"
MANAGER = "disaggregation/decode_kvcache_offload_manager.py"
FLAG = "disaggregation_decode_enable_offload_kvcache"
NO_OFFLOAD = drop(FLAG, title="drop decode offload (generated KV is not kept)")
STRIDE = "SGLANG_HICACHE_DECODE_OFFLOAD_STRIDE"


@rule(
    "KV520",
    stage=Stage.RESOLVE,
    option=FLAG,
    source=f"{HOOK}:400",
    example=Example(
        "--disaggregation-decode-enable-offload-kvcache --hicache-storage-backend file"
    ),
    fragments=("offload-kvcache is only supported for decode side",),
)
def offload_needs_decode_role(r: Resolution) -> Iterator[Hit]:
    """Decode KV offload runs on a PD decode server.

    Why: it stores the KV of generated tokens, which only the decode side of a pair has; the
    prefill side stores prompts through HiCache.
    Fix: --disaggregation-mode decode, or HiCache with a storage back end for one plain server.
    """
    if not r.disaggregation_decode_enable_offload_kvcache or r.disaggregation_mode == "decode":
        return
    changes: dict[str, object] = {FLAG: None, "enable_hierarchical_cache": True}
    if r.hicache_storage_backend is None:
        changes["hicache_storage_backend"] = "file"
    if r.chose("disable_radix_cache"):
        changes["disable_radix_cache"] = None
    role = "a plain server" if r.disaggregation_mode == "null" else "a prefill server"
    yield hit(
        f"this is {role}; decode KV offload runs on the decode side of a pair",
        set_to(
            "make this a decode server (needs prefill servers and a router)",
            disaggregation_mode="decode",
        ),
        set_to("store KV through HiCache instead", **changes),
        NO_OFFLOAD,
    )


@rule(
    "KV521",
    stage=Stage.RESOLVE,
    option="hicache_storage_backend",
    source=f"{HOOK}:404",
    example=Example("--disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache"),
    fragments=("offload-kvcache is only supported when hicache-storage-backend is provided",),
)
def offload_needs_storage(r: Resolution) -> Iterator[Hit]:
    """Decode KV offload needs a storage back end.

    Why: pages pass through host memory into a store; without one they would have no place.
    Fix: --hicache-storage-backend file (a directory), or mooncake, nixl, hf3fs ….
    """
    if not r.disaggregation_decode_enable_offload_kvcache or r.hicache_storage_backend is not None:
        return
    yield hit(
        "no storage back end is set, and offloaded pages go to one",
        set_to("store pages as files in a directory", hicache_storage_backend="file"),
        set_to("store pages in Mooncake (needs its master)", hicache_storage_backend="mooncake"),
        NO_OFFLOAD,
    )


@rule(
    "KV522",
    stage=Stage.RESOLVE,
    option=FLAG,
    source=f"{HOOK}:408",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache "
        "--hicache-storage-backend file --disaggregation-decode-retraction-backup host_pool"
    ),
    fragments=("both build a decode host pool",),
)
def offload_or_host_pool_retraction(r: Resolution) -> Iterator[Hit]:
    """Decode KV offload and host-pool retraction exclude each other.

    Why: each builds a host pool of its own on the decode server. A host receive threshold below
    1 asks for the retraction pool too.
    Fix: back retracted requests up as CPU tensors, or drop the offload.
    """
    backup = r.disaggregation_decode_retraction_backup
    if not r.disaggregation_decode_enable_offload_kvcache or backup != "host_pool":
        return
    threshold = number(r.disaggregation_decode_host_receive_threshold)
    receives = threshold is not None and threshold < 1
    changes = {"disaggregation_decode_retraction_backup": "cpu_tensor"}
    because = "retraction is set to a host pool"
    if receives:
        undo = set_to(
            "receive into GPU memory, retract to CPU tensors",
            disaggregation_decode_host_receive_threshold=None,
            **changes,
        )
        because = f"a host receive threshold of {threshold:g} retracts to a host pool"
    else:
        undo = set_to("back retracted requests up as CPU tensors", **changes)
    yield hit(f"{because}, and the offload builds another", undo, NO_OFFLOAD)


DECODE_OFFLOAD_GATES: tuple[Part, ...] = (
    offload_needs_decode_role,
    offload_needs_storage,
    offload_or_host_pool_retraction,
)


def _offloads(r: Resolution) -> bool:
    return bool(
        r.disaggregation_decode_enable_offload_kvcache
        and r.disaggregation_mode == "decode"
        and r.hicache_storage_backend is not None
    )


def asked_stride(r: Resolution) -> int | None:
    """The stride in tokens that the environment asks for; None for none or one without effect."""
    stride = r.env_int(STRIDE, 0)
    return stride if stride > 0 else None


def offload_stride(page_size: int, asked: int | None) -> int:
    """Tokens between two offloads: whole pages, one at least."""
    if asked is None:
        return page_size
    return max(page_size, asked // page_size * page_size)


@rule(
    "KV523",
    stage=Stage.OFFLOAD,
    option=f"env:{STRIDE}",
    source=f"{MANAGER}:61",
    severity=Severity.WARNING,
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache "
        "--hicache-storage-backend file --page-size 64",
        env={STRIDE: "100"},
    ),
)
def offload_stride_in_pages(r: Resolution) -> Iterator[Hit]:
    """The offload stride is cut to whole pages.

    Why: pages are stored whole, so a stride is rounded down to pages and never below one. A
    value that is no positive number counts as one page.
    Fix: a multiple of the page size.
    """
    page = number(r.page_size)
    if not _offloads(r) or STRIDE not in r.env or page is None or page < 1:
        return
    runs = offload_stride(int(page), asked_stride(r))
    if r.env[STRIDE].strip() != str(runs):
        yield hit(
            f"the offload stride is set to {r.env[STRIDE]} tokens; the engine stores every "
            f"{runs} tokens, because a page holds {int(page)}",
            set_to(f"set the stride to {runs}", **{f"env:{STRIDE}": str(runs)}),
        )


@rule(
    "KV524",
    stage=Stage.OFFLOAD,
    option=FLAG,
    source=f"{MANAGER}:216",
    severity=Severity.NOTE,
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache "
        "--hicache-storage-backend file"
    ),
)
def offload_stride_told(r: Resolution) -> Iterator[Hit]:
    """How often a decode server stores generated KV.

    Why: a request's KV is copied out once that many new tokens exist; the rest of a page stays.
    Fix: SGLANG_HICACHE_DECODE_OFFLOAD_STRIDE for fewer, larger copies.
    """
    page = number(r.page_size)
    if _offloads(r) and page is not None and page >= 1:
        runs = offload_stride(int(page), asked_stride(r))
        pages = runs // int(page)
        yield hit(
            f"KV is stored every {runs} generated tokens ({pages} page"
            f"{'s' if pages > 1 else ''} of {int(page)})"
        )


@rule(
    "KV525",
    stage=Stage.OFFLOAD,
    option="hicache_storage_backend_extra_config",
    source=f"{MANAGER}:73",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache "
        "--hicache-storage-backend file --hicache-storage-backend-extra-config @store.toml"
    ),
    fragments=("Invalid hicache storage backend extra config JSON",),
)
def offload_config_is_json(r: Resolution) -> Iterator[Hit]:
    """Decode KV offload takes the store's configuration as JSON text only.

    Why: HiCache also reads @file.json, @file.toml and @file.yaml; the decode offload does not.
    Fix: write the object itself on the command line.
    """
    text = r.hicache_storage_backend_extra_config
    if not _offloads(r) or not text:
        return
    value, complaint = read_json(text)
    if isinstance(text, str) and text.startswith("@"):
        yield hit(f"{text} names a file, and decode offload reads JSON text only", *OBJECT_FIX)
    elif complaint is not None:
        yield hit(f"the store's configuration is no JSON: {complaint}", *OBJECT_FIX)
    elif value is not None and not isinstance(value, dict):
        yield hit(
            f"the store's configuration is a JSON {type(value).__name__}, not an object",
            *OBJECT_FIX,
        )


DECODE_OFFLOAD_CONFIG: tuple[Part, ...] = (
    offload_stride_in_pages,
    offload_stride_told,
    offload_config_is_json,
)
