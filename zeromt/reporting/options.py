"""The command `zeromt report` and its arguments."""

from launcher.options.parser import Command, Parser, add_plugins, add_run_folder


def add_report(parser: Parser) -> None:
    """Arguments of `zeromt report`."""
    add_run_folder(parser)
    add_plugins(parser)


COMMANDS = {
    "report": Command(
        summary="write report.md of a run: settings, scores, curves, translations",
        usage="RUN",
        add_arguments=add_report,
        target="zeromt.reporting.command:run",
        group="look into a run",
    ),
}
