"""Hypothesis strategies for launches, hostile values included."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kvtui.core.draft import Draft
from kvtui.core.options import Option, catalogue
from kvtui.core.secrets import SECRET_OPTIONS, holds_secret, is_secret_name

HOSTILE = (
    "$(touch /tmp/x)", "`id`", "'; rm -rf / #", '"; $HOME', "a\nb", "\\", "%n %% %h", "{{x}}",
    "${X:-y}", "$$", "$(POD_IP) x", "-", "--", "-x", "--tp-size", "#c", "a b  c", "\t", "é😀",
    "!!python/object:os.system", "&a *a", "\x7f", "\x01", "null", "true", "1e3", "0x10", "~",
    "# kvtui", "\r\n", "]]", "\u2028x", "\x85", "'''", '"""', "|", ">", "@x", "*", "?", "\\n",
)  # fmt: skip

TEXTS = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs", "Cn"], exclude_characters="\0"), max_size=20),
    st.sampled_from(("auto", "models/x", "/models/a b", "Qwen/Qwen3-8B", "x=y")),
)

ENV_NAMES = st.sampled_from(("SGLANG_A", "CUDA_VISIBLE_DEVICES", "X_1", "NCCL_DEBUG")).filter(
    lambda name: not is_secret_name(name)
)


def _json() -> st.SearchStrategy[Any]:
    leaf = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXTS)
    return st.dictionaries(TEXTS, st.one_of(leaf, st.lists(leaf, max_size=2)), max_size=3)


def _word(option: Option) -> st.SearchStrategy[Any]:
    if option.choices:
        return st.sampled_from(option.choices)
    if option.type in ("int", "human_readable_int"):
        return st.integers(-5, 1 << 40)
    if option.type == "float":
        return st.floats(0, 1, allow_nan=False)
    if option.type == "loads":
        return _json()
    if option.type == "json_list_type":
        return st.lists(st.one_of(TEXTS, st.integers(0, 9)), max_size=3)
    if option.type == "parse_cuda_graph_config_arg":
        return st.just({"decode": {"max_bs": 8, "backend": "full"}})
    if option.type == "nullable_str":
        return TEXTS.filter(lambda text: text not in ("", "None"))
    if option.kind == "lora_paths":
        return TEXTS.map(str.strip).filter(lambda text: not text.startswith("{"))
    return TEXTS


def _value(option: Option) -> st.SearchStrategy[Any]:
    if option.kind == "switch":
        return st.booleans()
    if option.is_bool:
        return st.just(True)
    if option.kind == "deprecated_const":
        return st.just(True)
    if option.nargs == "?":
        return TEXTS
    if option.many:
        from kvtui.core.argv import classify

        low = 0 if option.nargs == "*" else 1
        items = st.lists(_word(option), min_size=low, max_size=3)
        return items.filter(
            lambda words: len(words) < 2 or all(classify(str(w)).is_value for w in words)
        )
    return _word(option)


OPTIONS = sorted(
    (
        option
        for option in catalogue().options.values()
        if option.flags and option.name not in SECRET_OPTIONS and option.name != "config"
    ),
    key=lambda option: option.name,
)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """A launch with a model and a few chosen options, none at its default."""
    options: dict[str, Any] = {"model_path": draw(TEXTS.filter(bool))}
    for option in draw(st.lists(st.sampled_from(OPTIONS), max_size=6, unique_by=lambda o: o.name)):
        value = draw(_value(option))
        keep = value != option.default and value is not None and option.problem(value) is None
        if keep and not holds_secret(option.name, value):
            options[option.name] = value
    env = draw(st.dictionaries(ENV_NAMES, TEXTS, max_size=2))
    env = {k: v for k, v in env.items() if "://" not in v}
    return Draft(options=options, env=env)
