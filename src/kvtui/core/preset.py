"""Presets: a launch as TOML that people read and diff, with the proof of what was checked.

Loading is reading data: nothing is executed, no file is opened, and what deserves a second look
(remote code, paths, code that an option names) is listed in `cautions`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kvtui.core import toml_text
from kvtui.core.draft import ENV_NAME, Draft
from kvtui.core.options import NEWEST, Option, catalogue
from kvtui.core.preset_cautions import MODEL_FOLDERS, cautions_of, forbidden_path
from kvtui.core.request import launch_digest
from kvtui.core.secrets import holds_secret, is_secret_name, without_secrets
from kvtui.core.suggest import nearest, nearest_name
from kvtui.core.translate import translations
from kvtui.core.values import shown
from kvtui.errors import InputError

SCHEMA = 1
"""Version of the preset format."""

SIZE_LIMIT = 1 << 20
"""Characters of the longest preset that is read."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""Names of presets: they become file names."""


class PresetError(InputError):
    """A preset that can't be read or written; the text names the key and what was expected."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What a preset is for, in words."""

    title: str = ""
    goal: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """What was checked for a launch, by what, where and when. Bytes are per rank."""

    digest: str
    """Over the launch without secrets; another one makes the proof stale."""
    verdict: str = ""
    time: str = ""
    """UTC, ISO 8601."""
    kvtui_version: str = ""
    rules_version: str = ""
    """The engine release that the rules describe."""
    engine_version: str = ""
    """Version of the SGLang that was asked, empty where none was."""
    engine_place: str = ""
    pool_class: str = ""
    pool_bytes: int = 0
    """Bytes that the built pool took, 0 where none was built."""
    gpu: str = ""
    driver: str = ""
    tokens_predicted: int = 0
    tokens_built: int = 0


@dataclass(frozen=True, slots=True)
class Preset:
    """A launch with its purpose and its proof."""

    draft: Draft
    meta: Meta = field(default_factory=Meta)
    proof: Proof | None = None
    cautions: tuple[str, ...] = ()
    """What somebody who loads another's preset should see before using it."""

    @property
    def is_stale(self) -> bool:
        """True where the launch was edited after the proof was made."""
        return self.proof is not None and self.proof.digest != proof_digest(self.draft)


def proof_digest(draft: Draft) -> str:
    """The digest that a proof of this launch carries."""
    return launch_digest(without_secrets(draft))


def is_preset_name(name: str) -> bool:
    """True for a name that can become a file name without leaving its folder."""
    return NAME.fullmatch(name) is not None and ".." not in name


def load_preset(text: str, where: str = "preset") -> Preset:
    """The preset in TOML text; raises PresetError. `where` names the file in messages."""
    if len(text) > SIZE_LIMIT:
        raise PresetError(f"{where}: larger than {SIZE_LIMIT >> 20} MiB")
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PresetError(f"{where}: no valid TOML: {error}") from None
    return preset_of(data, where)


MIGRATIONS: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""By schema version: how its data becomes that of the next version."""


def preset_of(data: Mapping[str, Any], where: str = "preset") -> Preset:
    """The preset that parsed data stands for; raises PresetError."""
    data = _migrated(dict(data), where)
    _known(data, ("schema", "meta", "hardware", "launch", "env", "proof"), where, "table")
    tables = {name: _table(data, name, where) for name in ("meta", "hardware", "launch", "env")}
    hardware = tables["hardware"]
    _known(hardware, ("gpu", "count"), f"{where}: [hardware]", "key")
    draft = Draft(
        options=_launch(tables["launch"], where),
        env=_env(tables["env"], where),
        gpu=_typed(hardware, "gpu", str, None, f"{where}: [hardware]"),
        gpu_count=_typed(hardware, "count", int, None, f"{where}: [hardware]"),
    )
    if draft.gpu_count is not None and not 1 <= draft.gpu_count <= 4096:
        raise PresetError(f"{where}: [hardware] count: expected 1 to 4096")
    proof = None
    if "proof" in data:
        proof = _record(Proof, _table(data, "proof", where), f"{where}: [proof]")
    meta = _record(Meta, tables["meta"], f"{where}: [meta]")
    return Preset(draft, meta, proof, cautions_of(draft))


def _migrated(data: dict[str, Any], where: str) -> dict[str, Any]:
    version = data.get("schema", SCHEMA)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise PresetError(f"{where}: schema: expected a number from 1 to {SCHEMA}")
    if version > SCHEMA:
        raise PresetError(f"{where}: schema {version} was written by a newer kvtui", "update kvtui")
    while version < SCHEMA:
        data = MIGRATIONS[version](data)
        version += 1
    return data


def _known(data: Mapping[str, Any], names: tuple[str, ...], where: str, what: str) -> None:
    for key in data:
        if key not in names:
            near = nearest(key, names, 0.5)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(names)}"
            raise PresetError(f"{where}: no {what} {shown(key)}", hint)


def _table(data: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    found = data.get(name, {})
    if not isinstance(found, dict):
        raise PresetError(f"{where}: {name}: expected a table, [{name}]")
    return found


def _typed(data: Mapping[str, Any], key: str, kind: type, default: Any, where: str) -> Any:
    value = data.get(key, default)
    if value is not default and (not isinstance(value, kind) or isinstance(value, bool)):
        word = {str: "text", int: "a whole number", list: "a list"}[kind]
        raise PresetError(f"{where} {key}: expected {word}, found {shown(value)}")
    return value


def _record(kind: type[Any], data: Mapping[str, Any], where: str) -> Any:
    """A dataclass of text, numbers and tuples of text from a table."""
    known = {f.name: f for f in fields(kind)}
    _known(data, tuple(known), where, "key")
    values: dict[str, Any] = {}
    for key in data:
        annotation = str(known[key].type)
        if annotation.startswith("tuple"):
            words = _typed(data, key, list, None, where)
            if not all(isinstance(word, str) for word in words):
                raise PresetError(f"{where} {key}: expected a list of text")
            values[key] = tuple(words)
        else:
            values[key] = _typed(data, key, int if annotation == "int" else str, None, where)
    if kind is Proof and "digest" not in values:
        raise PresetError(f"{where} digest is missing")
    return kind(**values)


def _env(data: Mapping[str, Any], where: str) -> dict[str, str]:
    for name, value in data.items():
        if not ENV_NAME.fullmatch(name):
            raise PresetError(f"{where}: [env] {shown(name)} is no name of a variable")
        if not isinstance(value, str) or "\0" in value:
            raise PresetError(f"{where}: [env] {name}: expected text, found {shown(value)}")
        if is_secret_name(name):
            raise PresetError(
                f"{where}: [env] {name} holds a secret", "set it in your environment instead"
            )
    return dict(data)


def _launch(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = catalogue().options
    options: dict[str, Any] = {}
    for key, value in data.items():
        option = known.get(key)
        if option is None or not option.flags or key == "config":
            raise PresetError(f"{where}: [launch] {_no_option(key)}")
        if holds_secret(key, value):
            raise PresetError(f"{where}: [launch] {key} holds a secret", "give it on the command")
        options[key] = _option_value(option, value, f"{where}: [launch] {key}")
    return options


def _no_option(key: str) -> str:
    if key == "config":
        return "config can't stand here: write the options themselves"
    word = "--" + key.replace("_", "-")
    old = translations().option(word)
    if old is not None:
        today = f"; today it is {', '.join(old.to)}" if old.to else ""
        return f"has no option {shown(key)}, {word} {old.origin}{today}"
    near = nearest_name(key)
    return f"has no option {shown(key)}" + (f"; did you mean {near}?" if near else "")


def _option_value(option: Option, value: Any, where: str) -> Any:
    if option.is_json and isinstance(value, str):
        try:
            value = option.read(value)
        except ValueError as error:
            raise PresetError(f"{where}: {error}") from None
    problem = option.problem(value)
    if problem is not None and not _is_other_choice(option, value):
        raise PresetError(f"{where}: expected {option.expected}, found {shown(value)}")
    if "\\u0000" in json.dumps(value, default=str):
        raise PresetError(f"{where}: holds a NUL character")
    bad = None if option.name in MODEL_FOLDERS else forbidden_path(value)
    if bad is not None:
        raise PresetError(f"{where}: {shown(bad)} leaves the preset's folder")
    return value


def _is_other_choice(option: Option, value: Any) -> bool:
    """True for a value of the right type that is only not among the choices: rules judge it."""
    return option.choices is not None and replace(option, choices=None).problem(value) is None


def data_of(preset: Preset) -> dict[str, Any]:
    """The preset as plain data in writing order, secrets left out; raises PresetError."""
    draft = without_secrets(preset.draft)
    if draft.unknown:
        raise PresetError(f"{draft.unknown[0]} is no option of SGLang", "repair the launch first")
    hardware = {"gpu": draft.gpu, "count": draft.gpu_count}
    meta = {f.name: getattr(preset.meta, f.name) for f in fields(Meta)}
    if meta["tags"]:
        meta["tags"] = list(meta["tags"])
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "meta": {key: value for key, value in meta.items() if value},
        "hardware": {key: value for key, value in hardware.items() if value is not None},
        "launch": _launch_data(draft),
        "env": dict(sorted(draft.env.items())),
    }
    if preset.proof is not None:
        data["proof"] = {
            f.name: value for f in fields(Proof) if (value := getattr(preset.proof, f.name))
        }
    return {key: value for key, value in data.items() if value != {}}


def _launch_data(draft: Draft) -> dict[str, Any]:
    from kvtui.core.command import ordered_names

    known = catalogue().options
    return {
        name: _saved_value(known[name], draft.options[name])
        for name in ordered_names(draft.options)
        if known[name].flags and name != "config"
    }


def _saved_value(option: Option, value: Any) -> Any:
    checked = _option_value(option, value, f"[launch] {option.name}")
    if option.is_json and "null" in json.dumps(checked):
        return json.dumps(checked)
    return list(checked) if isinstance(checked, tuple) else checked


def dump_preset(preset: Preset, previous: str | None = None) -> str:
    """The preset as TOML; comments and order of `previous` text are kept. Raises PresetError."""
    data = data_of(preset)
    try:
        return toml_text.write(data) if previous is None else toml_text.rewrite(previous, data)
    except ValueError as error:
        raise PresetError(str(error)) from None


def with_proof(preset: Preset, proof: Proof) -> Preset:
    """The preset with a proof for its launch as it stands."""
    return replace(preset, proof=replace(proof, digest=proof_digest(preset.draft)))


def engine_of(preset: Preset) -> str:
    """The engine release that a preset was checked for."""
    proof = preset.proof
    return (proof.engine_version or proof.rules_version) if proof is not None else NEWEST
