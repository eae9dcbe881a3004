"""Shell completion: of commands, options and choices by shtab, for fish by us; of settings, runs and configurations."""

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Literal

from configs.reading.meanings import fields
from configs.reading.shipped import shipped, shipped_presets
from launcher.options.command import Command
from launcher.options.parser import Parser

FILES = frozenset(
    {"path", "dataset_folder", "existing", "existing_file", "existing_folder", "existing_or_url", "input_file"}
    | {"new_path", "output", "output_file", "other_file", "page_file"}
)
"""Value types of `launcher.options.values` that are files or folders."""


Names = Literal["settings", "runs", "configs", "pipelines", "sites", "files"]
"""What an argument takes the name of."""
SHIPPED = {"configs": "configs.runs", "pipelines": "configs.pipelines", "sites": "configs.sites"}
"""Packages with the configurations that have names of their own."""


def script(commands: Mapping[str, Command], shell: str) -> str:
    """The script of a shell. It holds all names, so that a TAB starts no process; runs are looked for by the shell.

    Args:
        commands: by name, of one word or two.
        shell: bash, zsh or fish.
    """
    if shell == "fish":
        return "\n".join([*_fish(commands), *_fish_functions()])
    import shtab

    functions = "\n".join(_bash_functions() if shell == "bash" else _zsh_functions())
    made = str(shtab.complete(tree(commands), shell, preamble={shell: functions}))  # type: ignore[arg-type]
    if shell == "bash":
        return made + _BASH_WITHOUT_SPACE
    return re.sub(r'^  "\(\*\)::?', '  "*:', made, flags=re.MULTILINE)  # shtab's completes the first of several alone


def tree(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """One parser for all commands; those of two words are subcommands of their first word."""
    root = Parser(prog="zeromt", description="A distributed trainer for translation Transformers.")
    root.add_argument("--version", action="store_true", help="print the version")
    below = root.add_subparsers(parser_class=Parser)
    groups: dict[str, argparse._SubParsersAction[Parser]] = {}
    for name, command in commands.items():
        first, _, second = name.partition(" ")
        if second and first not in groups:
            groups[first] = below.add_parser(first, help=f"{first} ...").add_subparsers(parser_class=Parser)
        parent = groups[first] if second else below
        parser = parent.add_parser(second or first, help=_plain(command.summary), allow_abbrev=False)
        command.add_arguments(parser)
        for action in parser._actions:
            action.help = _plain(action.help or "")
            if (names := takes(action)) is not None:
                bash = {"files": "_shtab_compgen_files", "runs": "_zeromt_run_dirs", "settings": "_zeromt_settings"}
                action.complete = {  # type: ignore[attr-defined]
                    "bash": bash.get(names, f"_zeromt_{names}_files"),
                    "zsh": "_files" if names == "files" else f"_zeromt_{names}",
                }
    return root


def takes(action: argparse.Action) -> Names | None:
    """What an argument is the name of; None if that cannot be completed."""
    shown = action.metavar if isinstance(action.metavar, str) else ""
    if action.dest == "overrides" or shown == "SETTING":
        return "settings"
    if shown.startswith("RUN"):
        return "runs"
    named: dict[str, Names] = {"CONFIG": "configs", "PIPELINE": "pipelines"}
    if shown in named or "--site" in action.option_strings:
        return named.get(shown, "sites")
    return "files" if getattr(action.type, "__name__", "") in FILES else None


def settings() -> dict[str, list[str]]:
    """The settings that can be given as NAME=VALUE, and for each the values that have names."""
    by_path: dict[str, list[str]] = {"preset": shipped_presets()}
    for field in fields():
        if "[N]" in field.path or ".NAME." in field.path or field.type == "section":
            continue
        text = field.type.removesuffix(" or null").removeprefix("list of: ").removeprefix("kind: ")
        values = ["true", "false"] if text == "true or false" else text.split(" | ")
        is_named = all(re.fullmatch(r"[\w.+-]+", value) for value in values)
        known = by_path.setdefault(field.path, [])
        known += [value for value in values if is_named and len(values) > 1 and value not in known]
    return by_path


def _plain(text: str) -> str:
    """Text without characters that shells or argparse would interpret."""
    return text.replace("%", "%%").replace("`", "'").replace('"', "'").replace("$", "")


_BASH = """
_zeromt_settings() {
  local name= value=$1 before=
  if [[ $1 == *?=* ]]; then
    name=${1%%=*} value=${1#*=} before=$name=
  elif [[ $1 == = ]]; then
    name=${COMP_WORDS[COMP_CWORD-1]} value=
  elif [[ ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
    name=${COMP_WORDS[COMP_CWORD-2]}
  else
    compgen -S = -W '@NAMES@' -- "$1"
    return
  fi
  case $name in
@VALUES@
  esac
}

# folders that are runs or checkpoints, or have some in them; without any, all folders
_zeromt_run_dirs() {
  local folder path found=
  while IFS= read -r folder; do
    path=${folder/#~\\//$HOME/}
    if [[ -e $path/config.yaml ]] || compgen -G "${path//[\\[*?]/\\?}/*/config.yaml" > /dev/null; then
      found=1
      printf '%s\\n' "$folder"
    fi
  done < <(compgen -d -- "$1")
  [[ -n $found ]] || compgen -d -- "$1"
}
"""
_BASH_SHIPPED = """
_zeromt_@KIND@_files() {
  compgen -W '@NAMES@' -- "$1"
  compgen -f -X '!*.y*ml' -- "$1"
  compgen -d -- "$1"
}
"""
_BASH_WITHOUT_SPACE = """

# a value follows the name of a setting
_zeromt() {
  _shtab_zeromt "$@"
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2> /dev/null || :
}
complete -o bashdefault -F _zeromt zeromt
"""
_ZSH = """
_zeromt_settings() {
  if compset -P 1 '*='; then
    case ${IPREFIX%=} in
@VALUES@
    esac
  else
    compadd -S = -- @NAMES@
  fi
}

# folders that are runs or checkpoints, or have some in them; without any, all folders
_zeromt_runs() {
  local -a found
  found=( ${~PREFIX}*/config.yaml(N:h) ${~PREFIX}*/*/config.yaml(N:h:h) )
  if (( $#found )); then
    compadd -f -S / -q -- ${(u)found}
  else
    _files -/
  fi
}
"""
_ZSH_SHIPPED = """
_zeromt_@KIND@() {
  compadd -- @NAMES@
  _files -g '*.y*ml'
}
"""
_FISH = """
function _zeromt_settings
  printf '%s\\n' @NAMES@
end

# folders that are runs or checkpoints, or have some in them; without any, all folders
function _zeromt_runs
  set -l folders (__fish_complete_directories (commandline -ct) '')
  set -l found
  for folder in $folders
    set -l path (string replace -r '^~/' "$HOME/" -- (string split -f1 \\t -- $folder))
    set -l below (string trim -r -c / -- $path)/*/config.yaml
    if test -e $path/config.yaml; or test (count $below) -gt 0
      set -a found $folder
    end
  end
  if test (count $found) -gt 0
    printf '%s\\n' $found
  else
    printf '%s\\n' $folders
  end
end
"""
_FISH_SHIPPED = """
function _zeromt_@KIND@
  printf '%s\\n' @NAMES@
  __fish_complete_suffix .yaml
end
"""


def _filled(text: str, **replacements: str) -> str:
    for name, new in replacements.items():
        text = text.replace(f"@{name}@", new)
    return text


def _shipped(text: str) -> Iterator[str]:
    """A function for each kind of configuration that has names of its own."""
    for kind, package in SHIPPED.items():
        yield _filled(text, KIND=kind, NAMES=" ".join(shipped(package)))


def _bash_functions() -> Iterator[str]:
    known = settings()
    lines = (
        f'    {name}) compgen -P "$before" -W \'{" ".join(named)}\' -- "$value" ;;'
        for name, named in known.items()
        if named
    )
    values = "\n".join(lines)
    yield _filled(_BASH, NAMES=" ".join(known), VALUES=values)
    yield from _shipped(_BASH_SHIPPED)


def _zsh_functions() -> Iterator[str]:
    known = settings()
    values = "\n".join(f"      {name}) compadd -- {' '.join(named)} ;;" for name, named in known.items() if named)
    yield _filled(_ZSH, NAMES=" ".join(known), VALUES=values)
    yield from _shipped(_ZSH_SHIPPED)


def _fish_functions() -> Iterator[str]:
    known = settings()
    yield _filled(_FISH, NAMES=" ".join(f"{name}={value}" for name, named in known.items() for value in ("", *named)))
    yield from _shipped(_FISH_SHIPPED)


def _fish(commands: Mapping[str, Command]) -> Iterator[str]:
    """One line for each command and option."""
    yield "# fish completions of zeromt"
    yield "complete -c zeromt -e"
    for first in dict.fromkeys(name.split()[0] for name in commands):
        summary = commands[first].summary if first in commands else f"{first} ..."
        yield _line("__fish_use_subcommand", "-f", "-a", first, "-d", summary)
    for name, command in commands.items():
        parser = Parser(prog=name, add_help=True)
        command.add_arguments(parser)
        first, _, second = name.partition(" ")
        where = f"__fish_seen_subcommand_from {first}"
        if second:
            others = " ".join(other.split()[1] for other in commands if other.startswith(f"{first} "))
            yield _line(
                f"{where}; and not __fish_seen_subcommand_from {others}", "-f", "-a", second, "-d", command.summary
            )
            where += f"; and __fish_seen_subcommand_from {second}"
        for action in parser._actions:
            words = [part for option in action.option_strings for part in _fish_option(option)]
            names = takes(action)
            if action.choices is not None:
                words += ["-x", "-a", " ".join(map(str, action.choices))]
            elif names not in (None, "files"):
                words += [*(["-x"] if action.option_strings else ["-f"]), "-a", f"(_zeromt_{names})"]
            elif action.option_strings and action.nargs != 0:
                words += ["-r", *([] if names == "files" else ["-f"])]
            if words:
                yield _line(where, *words, "-d", action.help or "")


def _fish_option(option: str) -> tuple[str, str]:
    if option.startswith("--"):
        return "-l", option[2:]
    return ("-s", option[1:]) if len(option) == 2 else ("-o", option[1:])


def _line(condition: str, *words: str) -> str:
    return f"complete -c zeromt -n {shlex.quote(condition)} {' '.join(map(shlex.quote, words))}"
