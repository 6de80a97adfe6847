"""What the engine's command-line parser refuses, before anything is resolved."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Change, Fix, Severity, Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.parse_values import (
    deprecated_spelling,
    forget_illegal_values,
    invalid_json,
    not_among_choices,
    unknown_log_level,
    wrong_type,
)
from kvtui.core.steps.parse_words import (
    ambiguous_option,
    foreign_option,
    help_asked,
    old_option,
    stray_word,
    unknown_option,
    value_missing_or_needless,
)
from kvtui.core.values import shown


@rule(
    "KV008",
    stage=Stage.PARSE,
    option="model_path",
    source="arg_groups/fields/model.py:51",
    example=Example("--model-path="),
    fragments=("the following arguments are required: --model-path",),
)
def model_path_missing(r: Resolution) -> Iterator[Hit]:
    """No model is named.

    Why: `--model-path` is the one option that the engine insists on.
    Fix: name a folder or a hub id.
    """
    if not r.draft.options.get("model_path"):
        yield hit("--model-path is missing: a folder with config.json, or a hub id")


@rule(
    "KV010",
    stage=Stage.PARSE,
    option="config",
    source="utils/server_args_config_parser.py:65",
    example=Example("--config serve.json"),
    fragments=(
        "Config file must be YAML",
        "Config file not found",
        "Multiple config files specified",
        "No config file specified",
        "Config file must contain a dictionary",
        "Unsupported config option",
    ),
)
def config_file_unusable(r: Resolution) -> Iterator[Hit]:
    """The file of `--config` can't be used.

    Why: it must be one YAML file with options and values at its top level, and only plain
    switches and options with values may stand in it.
    Fix: repair the file, or give its options in the command.
    """
    reason = r.draft.misread.get("config")
    if reason is not None:
        yield hit(reason, drop("config"))
    elif "config" in r.draft.options and "config" not in r.draft.spelled:
        r.doubt(f"the options in {shown(r.draft.options['config'])} were not read")


@rule(
    "KV012",
    stage=Stage.PARSE,
    option="config",
    severity=Severity.WARNING,
    source="server_args.py:683",
    example=Example("--config=serve.yaml"),
)
def config_file_ignored(r: Resolution) -> Iterator[Hit]:
    """A configuration file that the engine does not read.

    Why: the engine looks for the word `--config` as it stands; with `=` or abbreviated it is
    accepted, and the file is never opened.
    Fix: write `--config FILE` as two words.
    """
    written = r.draft.spelled.get("config")
    if written is not None:
        path = r.draft.options.get("config")
        yield hit(
            f"{shown(written)} is accepted, but the file is not read in this spelling",
            Fix("write --config and the file as two words", (Change("config", path),)),
            drop("config"),
        )


PARSE: tuple[Part, ...] = (
    unknown_option,
    ambiguous_option,
    foreign_option,
    old_option,
    wrong_type,
    not_among_choices,
    value_missing_or_needless,
    model_path_missing,
    invalid_json,
    config_file_unusable,
    stray_word,
    config_file_ignored,
    unknown_log_level,
    deprecated_spelling,
    help_asked,
    forget_illegal_values,
)
