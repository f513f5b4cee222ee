"""Generated reference pages: every verb's help, every metric, every rule, schemas, the API; in both languages.

Usage: python -m servemark.cli.reference DOCS [--check]. With --check nothing is written, and a page that differs
makes exit code 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from servemark.base.messages import LANGUAGES, set_language, text
from servemark.checks.explain_view import example_lines, example_of, setting_of
from servemark.checks.model import Rule
from servemark.checks.registry import all_rules
from servemark.cli.main import group
from servemark.cli.reference_formats import formats_page
from servemark.metrics.registry import METRICS
from servemark.replay.records_io import records_schema
from servemark.results.serialize import json_schema
from servemark.runs.sweep_status import status_schema
from servemark.web.api.openapi import document
from servemark.web.api.registry import ROUTES


def pages(docs: Path) -> dict[str, str]:
    """Path below `docs` -> content, of every generated page. Samples of formats lie in the checkout around it."""
    schemas = {
        "result.schema.json": json_schema(),
        "requests.schema.json": records_schema(),
        "sweep.schema.json": status_schema(),
        "api.json": document(ROUTES, "en"),
    }
    found = {name: json.dumps(each, indent=1, ensure_ascii=False) + "\n" for name, each in schemas.items()}
    for lang in LANGUAGES:
        set_language(lang)
        folder = "" if lang == "en" else "zh/"
        found[f"{folder}cli.md"] = _verbs()
        found[f"{folder}metrics.md"] = _metrics()
        found[f"{folder}rules.md"] = _rules()
        found[f"{folder}formats.md"] = formats_page(docs.resolve().parent / "tests" / "results" / "samples")
        for page in ("cli", "metrics", "rules", "formats"):
            name = f"{page}.md"
            found[f"{folder}{name}"] = _switched(found[f"{folder}{name}"], name, lang)
    set_language(None)
    return found


def _switched(page: str, name: str, lang: str) -> str:
    """The page with the line that leads to its other language below its title."""
    line = f"**English** | [简体中文](zh/{name})" if lang == "en" else f"[English](../{name}) | **简体中文**"
    title, _, rest = page.partition("\n")
    return f"{title}\n\n{line}\n{rest}"


def _verbs() -> str:
    parts = [f"# {text('cli.reference.verbs')}", "", text("cli.reference.generated"), ""]
    root = click.Context(group, info_name="servemark", terminal_width=100, max_content_width=100)
    for name in group.list_commands(root):
        command = group.get_command(root, name)
        if command is not None:
            parts += _verb(command, root, name, 2)
    return "\n".join(parts).rstrip() + "\n"


def _verb(command: click.Command, parent: click.Context, name: str, level: int) -> list[str]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100, max_content_width=100)
    lines = [
        f"{'#' * level} {context.command_path}",
        "",
        "```text",
        command.get_help(context).rstrip(),
        "```",
        "",
    ]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                lines += _verb(found, context, inner, level + 1)
    return lines


def _metrics() -> str:
    parts = [f"# {text('cli.reference.metrics')}", "", text("cli.reference.generated"), ""]
    parts += [text("cli.reference.percentiles"), ""]
    for metric in METRICS.values():
        parts += [
            f"## {metric.id}",
            "",
            f"**{text(metric.label_key)}** ({metric.unit}). {text(metric.definition_key)}",
            "",
            text("cli.explain.formula", None, formula=f"`{text(metric.formula_key)}`"),
            "",
            text(f"cli.explain.better.{metric.better}"),
            "",
        ]
    return "\n".join(parts).rstrip() + "\n"


def _rules() -> str:
    parts = [f"# {text('cli.reference.rules')}", "", text("cli.reference.generated"), ""]
    by_family: dict[str, list[Rule]] = {}
    for rule in all_rules().values():
        by_family.setdefault(rule.family, []).append(rule)
    for family, rules in by_family.items():
        parts += [f"## {text('checks.family.' + family.replace('-', '_'))}", ""]
        for rule in rules:
            severity = text(f"checks.severity.{rule.severity}")
            parts += [f"### {rule.code}", "", f"**{rule.summary()}** ({severity}) {rule.why()}", ""]
            commands, setting = example_of(rule).commands, setting_of(rule)
            if commands:
                parts += [text("checks.view.example_commands"), "", "```sh", *commands, "```", ""]
                continue
            lines = [*([setting] if setting else []), *example_lines(rule)]
            parts += [text("cli.reference.example"), "", "```diff", *lines, "```", ""]
    return "\n".join(parts).rstrip() + "\n"


def main() -> int:
    """Write or check the pages."""
    docs = Path(sys.argv[1])
    check = "--check" in sys.argv[2:]
    stale = []
    for name, content in pages(docs).items():
        path = docs / name
        if path.exists() and path.read_text(encoding="utf-8") == content:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"{docs / name}: {'differs; run scripts/docs' if check else 'written'}\n")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
