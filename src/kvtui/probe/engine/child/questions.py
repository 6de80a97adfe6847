"""The questions: hello, resolve. Each runs in a forked child of the warm probe."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any

from .release import reader_of
from .schema import fields_of, plain

SECRET_WORDS = ("api_key", "password", "token_secret", "watermark_key", "hf_token")
HEADLINE_LIMIT = 2000
"""Characters of an error text that are handed over."""


def hello(_: dict[str, Any]) -> dict[str, Any]:
    """Versions, GPUs, and which attention backends import here."""
    import sglang
    import torch

    gpus = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            gpus.append(
                {
                    "name": properties.name,
                    "capability": [properties.major, properties.minor],
                    "memory_mib": properties.total_memory >> 20,
                }
            )
    return {
        "version": sglang.__version__,
        "place": os.path.dirname(os.path.dirname(sglang.__file__)),
        "python": sys.executable,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpus": gpus,
        "backends": _backends(),
    }


BACKEND_MODULES = {
    "flashinfer": "flashinfer", "fa3": "sgl_kernel.flash_attn", "fa4": "flash_attn.cute",
    "triton": "triton", "flashmla": "sgl_kernel.flash_mla", "trtllm_mla": "flashinfer",
    "trtllm_mha": "flashinfer", "aiter": "aiter",
}  # fmt: skip
"""The package whose presence decides whether a backend can be imported at all."""


def _backends() -> dict[str, bool]:
    import importlib.util

    found: dict[str, bool] = {}
    for backend, module in BACKEND_MODULES.items():
        try:
            found[backend] = importlib.util.find_spec(module) is not None
        except (ImportError, ValueError, AttributeError):
            found[backend] = False
    return found


def resolve(question: dict[str, Any]) -> dict[str, Any]:
    """What this engine makes of `argv`: all resolved values, or its error with type and place."""
    answer, _ = resolve_launch(question)
    return answer


def resolve_launch(question: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """(answer, the engine's own resolved arguments or None)."""
    os.environ.update(question.get("env") or {})
    argv = [str(word) for word in question["argv"]]
    with lay_out_models(question.get("files") or {}, argv) as places:
        answer, arguments = _resolve(argv)
    return _with_names(answer, places), arguments


def _with_names(value: Any, places: dict[str, str]) -> Any:
    """The answer with the models' own names where it has the places of their files."""
    if isinstance(value, str):
        for place, name in places.items():
            value = value.replace(place, name)
        return value
    if isinstance(value, dict):
        return {key: _with_names(one, places) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_names(one, places) for one in value]
    return value


@contextlib.contextmanager
def lay_out_models(files: dict[str, Any], argv: list[str]) -> Iterator[dict[str, str]]:
    """Write the small files of models that are not here, and point `argv` at them meanwhile.

    Yields each model's name by the place of its files.
    """
    places: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="kvtui-") as folder:
        for number, (path, contents) in enumerate(files.items()):
            if os.path.exists(path) or path not in argv:
                continue
            place = os.path.join(folder, str(number), os.path.basename(path) or "model")
            os.makedirs(place)
            for name, data in contents.items():
                with open(os.path.join(place, os.path.basename(name)), "w") as file:
                    json.dump(data, file)
            argv[:] = [place if word == path else word for word in argv]
            places[place] = path
        yield places


def _resolve(argv: list[str]) -> tuple[dict[str, Any], Any]:
    answer: dict[str, Any] = {"accepted": False, "stage": "parse"}
    talk, said = _listen()
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            from sglang.srt.server_args import prepare_server_args

            arguments = prepare_server_args(argv)
            logging.getLogger().addHandler(talk)
        answer["stage"] = "resolve"
        if hasattr(arguments, "resolve_once"):
            arguments.resolve_once()
        answer["stage"] = "check"
        arguments.check_server_args()
    except SystemExit:
        lines = [line for line in errors.getvalue().splitlines() if line.strip()]
        last = lines[-1].strip() if lines else "the parser stopped"
        return {
            **answer,
            "error_type": "SystemExit",
            "error": last.partition("error: ")[2] or last,
        }, None
    except BaseException as error:
        if answer["stage"] == "parse" and _was_resolving(error):
            answer["stage"] = "resolve"
        return {**answer, **describe(error), "said": said}, None
    answer.update(accepted=True, stage="done", resolved=resolved_values(arguments), said=said)
    return answer, arguments


def _was_resolving(error: BaseException) -> bool:
    """True where the record resolves itself while it is made (releases before `resolve_once`)."""
    return any(f.name == "__post_init__" for f in traceback.extract_tb(error.__traceback__))


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as type, text and place (file:line of the last frame).

    `foreign` is set where it was not raised by SGLang itself.
    """
    frames = traceback.extract_tb(error.__traceback__)
    at = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    told = {"error_type": type(error).__name__, "error": str(error)[:HEADLINE_LIMIT], "at": at}
    return told if raised_in_sglang(error) else {**told, "foreign": True}


def raised_in_sglang(error: BaseException) -> bool:
    """Whether the last frame is the engine's own."""
    frames = traceback.extract_tb(error.__traceback__)
    engine = getattr(sys.modules.get("sglang"), "__file__", None)
    if not frames or engine is None:
        return False
    return frames[-1].filename.startswith(os.path.dirname(engine) + os.sep)


class _Talk(logging.Handler):
    """Collects what the engine says at warning level while it resolves."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.said) < 50:
            self.said.append(record.getMessage()[:500])


def _listen() -> tuple[_Talk, list[str]]:
    said: list[str] = []
    return _Talk(said), said


def resolved_values(arguments: Any) -> dict[str, Any]:
    """Every field's resolved value as JSON, secrets left out, backends and graphs worked out."""
    read = reader_of(arguments)
    values: dict[str, Any] = {}
    for name, _ in fields_of(type(arguments)):
        if any(word in name for word in SECRET_WORDS):
            continue
        values[name] = plain(read(name))
    common = values.get("attention_backend")
    values["backends"] = [
        values.get("prefill_attention_backend") or common,
        values.get("decode_attention_backend") or common,
    ]
    graphs = read("cuda_graph_config")
    decode, prefill = getattr(graphs, "decode", None), getattr(graphs, "prefill", None)
    if decode is not None and prefill is not None:
        values["cuda_graph_config"] = None
        values["cuda_graph_max_bs_decode"] = decode.max_bs
        values["cuda_graph_backend_decode"] = str(decode.backend)
        values["cuda_graph_backend_prefill"] = str(prefill.backend)
    return values
