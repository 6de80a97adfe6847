"""Launches in YAML: compose files, Kubernetes manifests, SGLang's own configuration."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from kvtui.core.config_file import ConfigFileError, config_words
from kvtui.core.draft import Draft
from kvtui.core.export.config import ARGUMENT_MARK, ENV_MARK
from kvtui.core.imports.blanks import Found, blank, found_of
from kvtui.core.imports.shell import launches_in_shell, program_end
from kvtui.core.options import catalogue
from kvtui.errors import InputError

ALIAS_LIMIT = 100
"""References in a file; more would be a trap that grows when it is read."""


def documents(text: str) -> list[Any]:
    """All documents of a YAML stream; raises InputError."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads plain data, and not too many references."""

        aliases = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                self.aliases += 1
                if self.aliases > ALIAS_LIMIT:
                    raise yaml.YAMLError("too many references")
            return super().compose_node(parent, index)

    try:
        return list(yaml.load_all(text, Loader=Loader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark is not None else ""
        raise InputError(f"no valid YAML{place}") from None


def launches_in_yaml(text: str) -> Iterator[Found]:
    """Every launch in a YAML stream, whichever kind it is of."""
    for data in documents(text):
        if not isinstance(data, dict):
            continue
        if isinstance(data.get("services"), dict):
            yield from _compose(data["services"])
        elif "kind" in data:
            yield from _kubernetes(data)
        elif _is_config(data) or has_marks(text):
            yield _config(data, text)


def has_marks(text: str) -> bool:
    """True where comments carry what our own configuration file could not hold."""
    return f"\n# {ENV_MARK}" in text or f"\n# {ARGUMENT_MARK}" in text


def _is_config(data: Mapping[Any, Any]) -> bool:
    """True for a mapping that is made of the engine's options."""
    known = catalogue()
    names = [str(key).replace("_", "-") for key in data]
    hits = sum(f"--{n}" in known.by_flag or n.replace("-", "_") in known.options for n in names)
    return bool(names) and hits * 2 >= len(names)


def _config(data: Mapping[Any, Any], text: str) -> Found:
    try:
        words = list(config_words(data, catalogue()))
    except ConfigFileError as error:
        raise InputError(str(error)) from None
    env: dict[str, str] = {}
    for line in text.split("\n"):
        for mark in (ENV_MARK, ARGUMENT_MARK):
            if line.startswith(f"# {mark}"):
                beside = _beside(line.removeprefix(f"# {mark}"))
                if mark == ENV_MARK:
                    env.update(_assigned(beside))
                elif beside[-1:] != ["VALUE"]:
                    words += beside
    return found_of(words, env, "configuration file")


def _beside(text: str) -> list[str]:
    """Words of a comment that carries what the file can't hold."""
    if text.startswith("(escaped) "):
        escaped = text.removeprefix("(escaped) ").encode("ascii", "replace")
        text = escaped.decode("unicode_escape", "replace")
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _assigned(words: list[str]) -> dict[str, str]:
    pairs = (word.partition("=") for word in words)
    return {name: value for name, equals, value in pairs if equals and value != "..."}


_COMPOSE_VARIABLE = re.compile(
    r"\$(?:(\$)|\{([A-Za-z_]\w*)(?:(:?[-?+])((?:[^{}]|\$\{[^{}]*\})*))?\}|([A-Za-z_]\w*))"
)


def interpolated(text: str) -> str:
    """Compose's `${NAME:-default}` filled in; a name without a default becomes a blank."""

    def fill(match: re.Match[str]) -> str:
        dollar, name, sign, rest, bare = match.groups()
        if dollar:
            return "$"
        if sign in (":-", "-"):
            return interpolated(rest or "")
        return blank("${" + (name or bare) + "}")

    return _COMPOSE_VARIABLE.sub(fill, text)


def _texts(value: Any, split: bool) -> list[str]:
    """A command given as a list or as one line."""
    if isinstance(value, str):
        text = interpolated(value)
        try:
            return shlex.split(text) if split else [text]
        except ValueError:
            return []
    if isinstance(value, list):
        return [interpolated(_text(item)) for item in value]
    return []


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _compose(services: Mapping[Any, Any]) -> Iterator[Found]:
    for name, service in services.items():
        if not isinstance(service, dict):
            continue
        words = _texts(service.get("entrypoint"), True) + _texts(service.get("command"), True)
        env = _compose_env(service.get("environment"))
        yield from in_words(words, env, f"service {name}", str(service.get("image", "")))


def _compose_env(given: Any) -> dict[str, str]:
    if isinstance(given, dict):
        return {
            str(k): blank("${" + str(k) + "}") if v is None else interpolated(_text(v))
            for k, v in given.items()
        }
    pairs = (str(item).partition("=") for item in given) if isinstance(given, list) else ()
    return {
        name: interpolated(value) if equals else blank("${" + name + "}")
        for name, equals, value in pairs
    }


def in_words(
    words: list[str],
    env: Mapping[str, str],
    title: str,
    image: str = "",
    dropped: frozenset[str] = frozenset(),
) -> Iterator[Found]:
    """The launch in a container's words, looking into `sh -c`."""
    at = program_end(words)
    if at is not None:
        yield found_of(words[at:], env, title, dropped)
    elif len(words) >= 3 and re.fullmatch(r"(?:.*/)?(?:ba|da)?sh", words[0]):
        script = next(
            (w for w, f in zip(words[2:], words[1:], strict=False) if f.endswith("c")), ""
        )
        for found in launches_in_shell(script, env):
            kept = tuple(b for b in found.blanks if b.option not in dropped)
            yield Found(found.draft, title, kept)
    elif words and words[0].startswith("--") and "sglang" in image:
        yield found_of(words, env, title, dropped)


_K8S_VARIABLE = re.compile(r"\$(?:(\$)|\(([A-Za-z_][\w.-]*)\))")
CLUSTER_FILLS = frozenset(("host", "node_rank", "dist_init_addr"))
"""Options that a manifest lets the cluster fill in; they are no choices of the launch."""


def _kubernetes(data: Mapping[str, Any]) -> Iterator[Found]:
    kind = str(data.get("kind"))
    metadata = data.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    size = _group_size(data)
    seen: list[Draft] = []
    for container in _containers(data, 0):
        env = _k8s_env(container.get("env"))
        if size:
            env.setdefault("LWS_GROUP_SIZE", str(size))
        words = [_filled(_text(w), env) for w in _list(container, "command", "args")]
        own = {n: v for n, v in env.items() if n != "LWS_GROUP_SIZE" and not _is_field(v)}
        title = f"{kind} {name}, container {container.get('name', '')}"
        for found in in_words(words, own, title, str(container.get("image", "")), CLUSTER_FILLS):
            if found.draft not in seen:
                seen.append(found.draft)
                yield found


def _list(container: Mapping[str, Any], *names: str) -> list[Any]:
    lists = (container.get(name) for name in names)
    return [item for given in lists if isinstance(given, list) for item in given]


def _containers(node: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """Containers of every pod template inside a manifest; init containers are left out."""
    if depth > 12:
        return
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "containers" and isinstance(value, list):
                yield from (item for item in value if isinstance(item, dict))
            elif key != "initContainers":
                yield from _containers(value, depth + 1)
    elif isinstance(node, list):
        for item in node:
            yield from _containers(item, depth + 1)


def _group_size(data: Mapping[str, Any]) -> int | None:
    spec = data.get("spec")
    template = spec.get("leaderWorkerTemplate") if isinstance(spec, dict) else None
    size = template.get("size") if isinstance(template, dict) else None
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def _k8s_env(given: Any) -> dict[str, str]:
    env: dict[str, str] = {}
    for row in given if isinstance(given, list) else ():
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            continue
        name = row["name"]
        source = row.get("valueFrom")
        if isinstance(source, dict):
            kind = "field" if "fieldRef" in source else "secret"
            env[name] = blank(f"$({name})" if kind == "secret" else f"$({name}) of the pod")
        else:
            env[name] = _filled(_text(row.get("value")), env)
    return env


def _is_field(value: str) -> bool:
    return value.endswith(" of the pod\ufdd1")


def _filled(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` filled in from the container's own environment."""

    def fill(match: re.Match[str]) -> str:
        if match.group(1):
            return "$"
        name = match.group(2)
        return env.get(name, blank(f"$({name})"))

    return _K8S_VARIABLE.sub(fill, text)
