"""`zeromt launch KIND`: makes a cluster from its kind and a site's profile, and launches on it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from configs.components import kinds
from configs.load import load_plugins
from configs.plugins import load_named
from configs.site import load_site
from launcher.machine.supervise import Supervisor
from launcher.options.command import Command
from launcher.options.parser import Parser, add_plugins


def launch(
    *,
    kind: str,
    supervisor: Supervisor | None = None,
    site: str | None = None,
    settings: Sequence[str] = (),
    **arguments: Any,
) -> int:
    """Launch on a cluster.

    Args:
        kind: of the cluster.
        supervisor: for a cluster in the foreground; its signal handlers are in place.
        site: a profile.
        settings: `key=value`, which override fields of the profile.
        arguments: those named like fields of the cluster override the profile's unless None; the others go to
            `Cluster.launch`.

    Returns:
        See `Cluster.launch`.

    Raises:
        UserError: a value is wrong, or the cluster refuses.
    """
    cluster, others = cluster_of(kind, site=site, settings=settings, **arguments)
    return int(cluster.launch(supervisor, **others))


def cluster_of(kind: str, *, site: str | None, settings: Sequence[str], **arguments: Any) -> tuple[Any, dict[str, Any]]:
    """The cluster that the arguments of `launch` describe, and those of them that are none of its fields."""
    own = {field.name for field in dataclasses.fields(kinds("cluster")[kind])}
    changes = {name: value for name, value in arguments.items() if name in own and value is not None}
    return load_site(kind, site, settings, changes), {k: v for k, v in arguments.items() if k not in own}


def commands(words: Sequence[str] = ()) -> dict[str, Command]:
    """`launch KIND` for every kind of cluster, including those of plugins.

    Args:
        words: after the command's name. A plugin named there by `--plugins` or by CONFIG, if it comes first, may define
            the kind.

    Raises:
        UserError: a plugin, or an installed package's components, cannot be imported.
    """
    parser = Parser(add_help=False, allow_abbrev=False)
    add_plugins(parser)
    given, rest = parser.parse_known_args(words)
    if rest and not rest[0].startswith("-"):
        load_plugins(rest[0])
    load_named(given.plugins)
    return {
        f"launch {kind}": Command(
            summary=(cluster.__doc__ or kind).partition("\n")[0],
            usage=cluster.usage,
            add_arguments=cluster.add_arguments,
            target="launcher.commands:launch_here" if cluster.is_foreground else "launcher.jobs.command:launch",
            given={"kind": kind},
        )
        for kind, cluster in kinds("cluster").items()
    }
