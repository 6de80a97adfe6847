"""Storage back ends of HiCache: configuration, layouts, and what must be there beside them."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.hicache_config import (
    CONFIG,
    OBJECT_FIX,
    control_complaints,
    dynamic_example,
    file_complaint,
    names_file,
    read_json,
    store_complaints,
)
from kvtui.core.steps.hicache_pools import PLAIN_LAYOUTS, host_pools, tree_host_pools
from kvtui.core.steps.kv_cache_common import above_one

CONTROLLER = "managers/cache_controller.py"
FILES = set_to("store pages as files in a directory", hicache_storage_backend="file")
DCP_STORES = ("file", "mooncake")
"""Stores that take parts of pages. Source: cache_controller.py:560."""
PACKAGES = {
    "mooncake": "mooncake-transfer-engine", "nixl": "nixl", "hf3fs": "hf3fs_py_usrbio",
    "aibrix": "aibrix-kvcache", "eic": "eic", "simm": "simm", "npu_memcache": "memcache_hybrid",
    "mori": "mori", "tensorcast": "tensorcast", "seaweedfs": "seaweedfs",
}  # fmt: skip
"""What must be installed for a store. Source: mem_cache/storage/*, their imports."""


def stored(r: Resolution) -> bool:
    """True where pages go to a store."""
    return r.hicache_storage_backend is not None and bool(host_pools(r))


@rule(
    "KV640",
    stage=Stage.LOAD,
    option=CONFIG,
    source="mem_cache/hybrid_cache/hybrid_cache_controller.py:378",
    example=Example(
        "--enable-hierarchical-cache --hicache-storage-backend file "
        '--hicache-storage-backend-extra-config \'{"prefetch_threshold": "a"}\''
    ),
    fragments=(
        "Unsupported config file",
        "prefetch_threshold must be int",
        "prefetch_timeout_base must be number",
        "prefetch_timeout_per_ki_token must be",
        "hicache_storage_pass_prefix_keys must be",
    ),
)
def store_config_reads(r: Resolution) -> Iterator[Hit]:
    """The store's configuration is a JSON object, or a file named after @.

    Why: HiCache takes a few keys for itself and hands the others to the store. Files may be
    JSON, TOML or YAML.
    Fix: '{"key": value}' or @store.toml, or drop it.
    """
    text = r.hicache_storage_backend_extra_config
    if r.hicache_storage_backend is None or not tree_host_pools(r) or not text:
        return
    if names_file(text):
        found = file_complaint(text)
        if found is not None:
            yield hit(f"the store's configuration file can't be read: {found}", *OBJECT_FIX)
        return
    value, complaint = read_json(text)
    if complaint is not None:
        yield hit(f"the store's configuration is no JSON: {complaint}", *OBJECT_FIX)
        return
    for found in control_complaints(value):
        yield hit(f"the store's configuration: {found}", *OBJECT_FIX)


@rule(
    "KV641",
    stage=Stage.LOAD,
    option=CONFIG,
    source="mem_cache/storage/backend_factory.py:126",
    example=Example("--enable-hierarchical-cache --hicache-storage-backend dynamic"),
    fragments=(
        "Missing required field",
        "tp_lcm_size must be divisible by tp_size",
        "l3_cleaner_enabled must be a boolean",
        "Unknown storage backend",
    ),
)
def store_config_suits(r: Resolution) -> Iterator[Hit]:
    """The store's configuration says what that store needs.

    Why: back end dynamic imports the class that it names; a least common multiple of
    tensor-parallel sizes must be one.
    Fix: the named keys.
    """
    if not stored(r) or names_file(r.hicache_storage_backend_extra_config):
        return
    value, complaint = read_json(r.hicache_storage_backend_extra_config or "{}")
    if complaint is not None or not isinstance(value, dict):
        return
    backend = r.hicache_storage_backend
    for found in store_complaints(backend, value, r.tp_size):
        fix = dynamic_example() if backend == "dynamic" else OBJECT_FIX[0]
        yield hit(f"storage back end {backend}: {found}", fix, FILES)


@rule(
    "KV642",
    stage=Stage.LOAD,
    option="hicache_mem_layout",
    source="mem_cache/storage/backend_factory.py:178",
    example=Example(
        "--enable-hierarchical-cache --hicache-storage-backend hf3fs --hicache-mem-layout page_head"
    ),
    fragments=("cannot access local variable 'bytes_per_page'",),
)
def hf3fs_layout(r: Resolution) -> Iterator[Hit]:
    """A 3FS store takes pages of layout layer_first, page_first or page_first_direct.

    Why: the size of a page in its file is worked out for these only.
    Fix: layout page_first.
    """
    hf3fs = stored(r) and r.hicache_storage_backend == "hf3fs"
    if hf3fs and r.hicache_mem_layout not in PLAIN_LAYOUTS:
        yield hit(
            f"3FS can't size pages of layout {r.hicache_mem_layout}",
            set_to("use layout page_first", hicache_mem_layout="page_first"),
            FILES,
        )


@rule(
    "KV643",
    stage=Stage.LOAD,
    option="hicache_storage_backend",
    source=f"{CONTROLLER}:560",
    example=Example(
        "--enable-hierarchical-cache --hicache-storage-backend nixl --tp-size 8 --dcp-size 2",
        model="deepseek-ai/DeepSeek-V3",
        gpu="h200",
    ),
    fragments=("HiCache L3 with DCP requires", "HiCache L3 with DCP supports only"),
)
def dcp_store(r: Resolution) -> Iterator[Hit]:
    """With decode context parallelism pages go to files or Mooncake.

    Why: a rank stores its part of a page under a key of its own, which other stores don't form.
    Fix: storage back end file or mooncake.
    """
    store = r.hicache_storage_backend
    if stored(r) and above_one(r.dcp_size) and store not in DCP_STORES:
        yield hit(
            f"storage back end {store} can't store parts of pages of {r.dcp_size} DCP ranks",
            FILES,
            drop("dcp_size"),
        )


@rule(
    "KV644",
    stage=Stage.LOAD,
    option="hicache_storage_backend",
    source="mem_cache/storage/mooncake_store/mooncake_store.py:208",
    severity=Severity.WARNING,
    example=Example("--enable-hierarchical-cache --hicache-storage-backend mooncake"),
    fragments=(
        "Either the environment variable 'MOONCAKE_MASTER'",
        "Either master_server_address or client_server_address is required",
    ),
)
def mooncake_has_a_master(r: Resolution) -> Iterator[Hit]:
    """Mooncake needs the address of its master.

    Why: the store registers there before the server starts; without an address the launch stops.
    Fix: MOONCAKE_MASTER=host:50051 in the environment, or master_server_address in the store's
    configuration.
    """
    if not stored(r) or r.hicache_storage_backend != "mooncake":
        return
    text = r.hicache_storage_backend_extra_config
    if names_file(text) or any(name in r.env for name in MOONCAKE_ADDRESSES):
        return
    value, _ = read_json(text or "{}")
    known = isinstance(value, dict) and any(
        value.get(key) is not None for key in ("master_server_address", "client_server_address")
    )
    if not known:
        yield hit(
            "no Mooncake master is named here; the launch stops unless its environment has one",
            set_to("name the master", **{"env:MOONCAKE_MASTER": "localhost:50051"}),
        )


MOONCAKE_ADDRESSES = (
    "MOONCAKE_MASTER",
    "MOONCAKE_CLIENT",
    "SGLANG_HICACHE_MOONCAKE_CONFIG_PATH",
)
"""Environment variables that lead to a Mooncake master. Source: mooncake_store.py:339-350."""


@rule(
    "KV645",
    stage=Stage.LOAD,
    option="hicache_storage_backend",
    source="mem_cache/storage/hf3fs/storage_hf3fs.py:312",
    severity=Severity.WARNING,
    example=Example(
        "--enable-hierarchical-cache --hicache-storage-backend hf3fs --tp-size 8",
        model="deepseek-ai/DeepSeek-V3",
        gpu="h200",
    ),
    fragments=("MLA model is not supported without global metadata server",),
)
def hf3fs_mla_needs_metadata(r: Resolution) -> Iterator[Hit]:
    """A 3FS store takes MLA pages with a metadata server only.

    Why: all ranks share one copy of an MLA page and must agree on its place.
    Fix: SGLANG_HICACHE_HF3FS_CONFIG_PATH with a metadata_server_url in that file.
    """
    name = "SGLANG_HICACHE_HF3FS_CONFIG_PATH"
    if stored(r) and r.hicache_storage_backend == "hf3fs" and name not in r.env and uses_mla(r):
        yield hit(f"{name} is not set here; without a metadata server the launch stops", FILES)


@rule(
    "KV646",
    stage=Stage.LOAD,
    option="hicache_storage_backend",
    source="mem_cache/storage/backend_factory.py:38",
    severity=Severity.NOTE,
    example=Example("--enable-hierarchical-cache --hicache-storage-backend nixl"),
    fragments=("Failed to import backend",),
)
def store_package(r: Resolution) -> Iterator[Hit]:
    """Most storage back ends need a package beside SGLang.

    Why: SGLang ships the adapter, not the store.
    Fix: install it, or store files.
    """
    package = PACKAGES.get(r.hicache_storage_backend) if stored(r) else None
    if package is not None:
        yield hit(f"{r.hicache_storage_backend} needs the package {package} where the server runs")


STORE_GATES: tuple[Part, ...] = (
    store_config_reads,
    store_config_suits,
    hf3fs_layout,
    dcp_store,
    mooncake_has_a_master,
    hf3fs_mla_needs_metadata,
    store_package,
)
