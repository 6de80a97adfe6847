"""TLS and HTTP/2 listeners (`srt/arg_groups/serving_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Severity, Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule


@rule(
    "KV1033", stage=Stage.RESOLVE, option="ssl_keyfile", source="arg_groups/serving_hook.py:49",
    example=Example("--ssl-keyfile key.pem"), fragments=("--ssl-", "SSL key file not found"),
)  # fmt: skip
def tls_files(r: Resolution) -> Iterator[Hit]:
    """TLS needs key and certificate together.

    Why: one without the other can't serve; options beside them would have no effect.

    Fix: give `--ssl-keyfile` and `--ssl-certfile`, or neither.
    """
    key, certificate = r.ssl_keyfile, r.ssl_certfile
    if bool(key) != bool(certificate):
        given, missing = ("keyfile", "certfile") if key else ("certfile", "keyfile")
        yield hit(f"--ssl-{given} without --ssl-{missing}", drop(f"ssl_{given}"))
    for name in ("ssl_ca_certs", "ssl_keyfile_password", "enable_ssl_refresh"):
        if getattr(r, name) and not (key or certificate):
            yield hit(
                f"--{name.replace('_', '-')} without --ssl-keyfile and --ssl-certfile",
                drop(name),
                option=name,
            )
    if key and certificate:
        yield Hit(f"{key} and {certificate} must exist where the server runs", (), Severity.NOTE)


@rule(
    "KV1034", stage=Stage.RESOLVE, option="enable_http2", source="arg_groups/serving_hook.py:89",
    example=Example("--enable-http-worker-reuseport"),
    fragments=("--enable-http-worker-reuseport", "--http2-", "--enable-http2 requires the",
               "not supported with --enable-http2"),
)  # fmt: skip
def http_settings(r: Resolution) -> Iterator[Hit]:
    """HTTP/2 has bounded streams and windows, and no certificate refresh.

    Why: another server program answers then; port sharing in turn is for several tokenizer
    workers over HTTP/1.

    Fix: change what the line names.
    """
    if r.enable_http_worker_reuseport and (r.tokenizer_worker_num == 1 or r.enable_http2):
        yield hit(
            f"--enable-http-worker-reuseport with {r.tokenizer_worker_num} tokenizer workers"
            + (" and HTTP/2" if r.enable_http2 else ""),
            drop("enable_http_worker_reuseport"),
        )
    if not r.enable_http2:
        return
    r.doubt("--enable-http2 needs the granian package, which not every installation has")
    for name, least, most in (
        ("http2_max_concurrent_streams", 1, 2**32),
        ("http2_initial_connection_window_size", 1024, 2**31),
    ):
        if not least <= whole(getattr(r, name)) < most:
            yield hit(f"--{name.replace('_', '-')} is {getattr(r, name)}", drop(name), option=name)
    if r.enable_ssl_refresh:
        yield hit("--enable-ssl-refresh with HTTP/2", drop("enable_ssl_refresh"))


HANDLE_SSL_VALIDATION: tuple[Part, ...] = (tls_files, http_settings)
