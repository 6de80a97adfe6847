"""Pages of text beside the list: an option's help, a step, the model's and the GPU's card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from kvtui.core.facts import Checkpoint, GpuFacts
from kvtui.tui.candidates import kind_of
from kvtui.tui.glyphs import Glyphs
from kvtui.tui.session import chosen
from kvtui.tui.steps import STEP_BY_KEY, not_used, step_of
from kvtui.tui.view import finding_head
from kvtui.tui.words import Tone, flag_of, gib_text, memory_text, value_text

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

STEP_TEXT = {
    "model": "Which checkpoint the server loads. Its config.json decides the attention kind, the "
    "KV pool class and the bytes per token.",
    "hardware": "Which GPUs it runs on, and how the model is split over them. A GPU of the "
    "catalogue can be judged without having it.",
    "attention": "Which kernels run attention in prefill and decode. They decide which KV types "
    "and page sizes are possible.",
    "kv": "How keys and values are stored, how much memory they get, and how it is shared out.",
    "offload": "What happens to keys and values that leave the GPU: host memory, storage, another "
    "server (PD).",
    "review": "Everything that was set, and the way out: pool check (p), engine (g), export (e), "
    "preset (s).",
}


def option_head(option: str, report: Report, g: Glyphs) -> Content:
    """Flag, present value and where it comes from."""
    picked = chosen(report.draft, option)
    resolved = report.plan.values.get(option)
    origin = report.plan.origins.get(option)
    parts: list[Content | str | tuple[str, str]] = [(flag_of(option), f"bold {Tone.KEY}"), "\n"]
    if picked is not None:
        parts += ["you chose ", (value_text(picked), "bold")]
        if option in report.plan.values and resolved != picked:
            parts += [", the engine runs ", (value_text(resolved), f"bold {Tone.WARN}")]
    elif option in report.plan.values:
        parts += ["not set", (f" {g.arrow} ", Tone.QUIET), (value_text(resolved), "bold")]
    if origin is not None and origin.why:
        parts += [("\nbecause " + origin.why, Tone.QUIET)]
    return Content.assemble(*parts)


def option_help(option: str, report: Report, g: Glyphs) -> Content:
    """Why it has no effect here, SGLang's help, aliases, and what it takes."""
    known = kind_of(option)
    parts: list[Content] = []
    unused = not_used(option, report)
    if unused:
        parts.append(Content.styled(f"No effect here: {unused}.", Tone.WARN))
    if known.help:
        parts.append(Content(known.help))
    facts = []
    if len(known.flags) > 1:
        facts.append("also " + ", ".join(known.flags[1:]))
    if known.type not in ("str",) and not known.choices:
        facts.append(TYPE_WORDS.get(known.type, known.type))
    if known.nargs in ("+", "*"):
        facts.append("several, with spaces between")
    if facts:
        parts.append(Content.styled(f" {g.dot} ".join(facts), Tone.QUIET))
    return Content("\n\n").join(parts)


TYPE_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "loads": "JSON",
    "json_list_type": "a JSON list",
    "human_readable_int": "a number, also with k, M, G, Ki, Mi, Gi",
    "nullable_str": "text, or None",
}


def step_page(key: str, report: Report, g: Glyphs) -> tuple[Content, Content]:
    """A step's title and text: what it decides and what was found."""
    step = STEP_BY_KEY[key]
    parts = [Content(STEP_TEXT[key])]
    if key == "model" and report.draft.model_path:
        found = report.facts.checkpoints.get(report.draft.model_path)
        why = report.facts.missing.get(f"model:{report.draft.model_path}")
        if found is not None:
            parts.append(model_card(found))
        elif why:
            parts.append(Content.styled(why, Tone.BAD))
    if key == "hardware" and report.facts.gpu is not None:
        parts.append(gpu_card(report.facts.gpu, report.facts.gpu_count, g))
    for finding in report.findings:
        if step_of(finding.option) == key:
            sign, option = finding_head(finding, g)
            parts.append(Content.assemble(sign, "  ", option, "\n", finding.message))
    return Content.styled(step.title, f"bold {Tone.KEY}"), Content("\n\n").join(parts)


def model_card(checkpoint: Checkpoint) -> Content:
    """What a model's config.json says about its size and attention."""
    config = checkpoint.config
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else config
    rows: list[tuple[str, str]] = [
        ("architecture", ", ".join(map(str, config.get("architectures") or ["not named"]))),
    ]
    for label, *names in CARD:
        value = next((inner[n] for n in names if inner.get(n) is not None), None)
        if value is None:
            value = next((config[n] for n in names if config.get(n) is not None), None)
        if value is not None:
            rows.append((label, f"{value:,}" if isinstance(value, int) else str(value)))
    quant = config.get("quantization_config")
    if isinstance(quant, dict):
        rows.append(("quantized", str(quant.get("quant_method", "yes"))))
    if checkpoint.weight_bytes:
        rows.append(("weights", gib_text(checkpoint.weight_bytes)))
    rows.append(("found in", checkpoint.origin))
    return card(rows)


CARD = (
    ("type", "model_type"),
    ("layers", "num_hidden_layers", "n_layer"),
    ("hidden size", "hidden_size"),
    ("heads", "num_attention_heads"),
    ("KV heads", "num_key_value_heads"),
    ("head size", "head_dim"),
    ("KV rank (MLA)", "kv_lora_rank"),
    ("window", "sliding_window"),
    ("experts", "num_experts", "n_routed_experts", "num_local_experts"),
    ("context", "max_position_embeddings"),
    ("dtype", "dtype", "torch_dtype"),
)


def gpu_card(gpu: GpuFacts, count: int, g: Glyphs) -> Content:
    """A GPU's place in the engine's terms."""
    rows = [
        ("GPU", f"{count}{g.times} {gpu.name}"),
        ("memory", f"{memory_text(gpu)} each"),
    ]
    if gpu.vendor == "nvidia":
        rows.append(("compute", f"{gpu.capability[0]}.{gpu.capability[1]} (SM{gpu.sm})"))
    if gpu.gcn_arch:
        rows.append(("arch", gpu.gcn_arch))
    if gpu.free_mib is not None:
        rows.append(("free now", gib_text(gpu.free_mib << 20)))
    rows.append(("where", "this machine" if gpu.local else "catalogue: judged without having it"))
    return card(rows)


def card(rows: list[tuple[str, str]]) -> Content:
    """Names and values in two columns."""
    width = max(len(name) for name, _ in rows) + 2
    return Content("\n").join(
        Content.assemble((f"{name:<{width}}", Tone.QUIET), value) for name, value in rows
    )
