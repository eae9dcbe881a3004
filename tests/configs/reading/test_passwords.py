"""Passwords in URLs: kept out of what is saved and shown, there for whom they were given."""

import dataclasses
import io
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from configs import RunConfig, UserError, load_run, load_saved, save_run
from configs.load import dump_run
from configs.process.streams import tell
from configs.reading.interpolations import as_saved
from configs.reading.passwords import lacks_password, without_passwords
from data_pipeline.prepared.storage import open_storage
from launcher.options.parser import Parser
from trainer.changes import changed_fields
from trainer.runs.failure import message_of, note_failure
from trainer.runs.status import write_status
from trainer.terminal.lines import LiveFormatter, LogHandler
from zeromt.cli.exit_codes import code_of

SECRET = "s3cr3t"
URLS = {
    "password": (f"https://me:{SECRET}@host:5000/data", "https://me:***@host:5000/data"),
    "token": (f"https://{SECRET}@host/data", "https://***@host/data"),
    "no user": (f"redis://:{SECRET}@host", "redis://:***@host"),
    "at": (f"https://me:{SECRET}@{SECRET}@host/", "https://me:***@host/"),
    "slash": (f"postgresql://me:{SECRET}/x@host/runs", "postgresql://me:***@host/runs"),
    "S3": (
        f"https://b.s3/x?X-Amz-Date=1&X-Amz-Credential={SECRET}%2F&X-Amz-Signature={SECRET}",
        "https://b.s3/x?X-Amz-Date=1&X-Amz-Credential=***&X-Amz-Signature=***",
    ),
    "old S3": (
        f"https://b.s3/x?AWSAccessKeyId={SECRET}&Signature={SECRET}&Expires=9",
        "https://b.s3/x?AWSAccessKeyId=***&Signature=***&Expires=9",
    ),
    "Azure": (f"https://a.net/x?sv=1&sig={SECRET}#top", "https://a.net/x?sv=1&sig=***#top"),
    "parameter": (f"mysql://host/db?user=me;password={SECRET}", "mysql://host/db?user=me;password=***"),
    "access token": (f"https://host/x?access_token={SECRET}&a=b", "https://host/x?access_token=***&a=b"),
}
HARMLESS = [
    "https://host:5000/data@v1/x", "sqlite:////shared/mlflow.db", "ssh://me@host/x", "s3://bucket/key=1/x?page=2",
    "https://me:${oc.env:NAME}@host/x", "https://${oc.env:NAME}@host/x", "https://host/x?sig=${oc.env:NAME,none}",
    "me:pw@host",
]  # fmt: skip
PLACES: dict[str, Callable[[str], str]] = {
    "a dataset": lambda url: f"stream: {{datasets: [{{path: '{url}', weight: 1}}]}}",
    "a tracker": lambda url: f"trackers: [{{kind: mlflow, uri: '{url}'}}]",
    "a queued command": lambda url: f"evaluation: {{queued: [{{name: q, command: \"score '{url}' x\"}}]}}",
    "a queued list": lambda url: f"evaluation: {{queued: [{{name: q, command: [score, '{url}']}}]}}",
    "a corpus": lambda url: f"prepare: {{root: '{url}'}}",
    "another value": lambda url: f"prepare: {{root: '{url}'}}\nstream: {{cache: '${{prepare.root}}/cache'}}",
}


@pytest.mark.parametrize("kind", URLS)
def test_url(kind: str) -> None:
    url, kept = URLS[kind]
    assert without_passwords(url) == kept
    assert without_passwords(f"a '{url}', \"{url}\" b") == f"a '{kept}', \"{kept}\" b"
    assert without_passwords(kept) == kept
    assert lacks_password(kept)
    assert not lacks_password(url)


@pytest.mark.parametrize("text", HARMLESS)
def test_text_without_a_password(text: str) -> None:
    assert without_passwords(text) == text
    assert not lacks_password(text)


@pytest.mark.parametrize("place", PLACES)
def test_nothing_saved_has_it(place: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(PLACES[place](f"https://me:{SECRET}@host/x?sig={SECRET}"))
    config = load_run(str(tmp_path / "mine.yaml"))
    assert SECRET in str(config)
    run = tmp_path / "runs" / "run"
    (run / "checkpoints").mkdir(parents=True)
    save_run(config, run / "config.yaml")
    kept = [(run / "config.yaml").read_text(), str(dataclasses.asdict(as_saved(config)))]
    kept += [metric.signature for metric in config.evaluation.queued]
    assert SECRET not in "".join(kept)
    assert "***" in kept[0]
    again = load_saved(run / "config.yaml")
    assert changed_fields(again, config) == {}
    (run / "config.yaml").write_text(kept[0].replace("***", SECRET))  # as somebody has edited it
    assert SECRET not in dump_run(load_saved(run / "config.yaml")), "of which exports and averages are made"
    save_run(config, run / "config.yaml")
    with pytest.raises(UserError, match="a saved configuration keeps no value of "):
        load_run(str(run / "config.yaml"))


def test_a_saved_configuration_with_the_password_given_again(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "mine.yaml").write_text(PLACES["a corpus"](URLS["password"][0]))
    save_run(load_run(str(tmp_path / "mine.yaml")), tmp_path / "config.yaml")
    config = load_run(str(tmp_path / "config.yaml"), [f"prepare.root={URLS['password'][0]}"])
    assert config.prepare.root == URLS["password"][0]
    assert SECRET not in dump_run(config)
    assert dump_run(RunConfig())


def _logged(live: bool) -> str:
    handler = LogHandler(io.StringIO())
    if live:
        handler.setFormatter(LiveFormatter(io.StringIO()))
    error = (ValueError, ValueError(URLS["S3"][0]), None)
    return handler.format(logging.LogRecord("x", logging.ERROR, "x", 1, "at %s", (URLS["password"][0],), error))


def _opened(_: Path) -> str:
    try:
        open_storage(URLS["S3"][0])
    except UserError as error:
        return str(error)
    return ""


def _noted(folder: Path) -> str:
    note_failure(ValueError(URLS["S3"][0]), folder, 0)
    return (folder / "failures" / "launch" / "rank-0.json").read_text()


def _status(folder: Path) -> str:
    write_status(folder, state="failed", error=URLS["S3"][0])
    return json.dumps(json.loads((folder / "status.json").read_text()))


def _failed() -> int:
    try:
        raise RuntimeError(f"at {URLS['S3'][0]}")
    except RuntimeError as error:
        return code_of(error)


def _usage(_: Path) -> str:
    Parser(prog="x").parse_args([f"--at={URLS['S3'][0]}"])
    return ""


SHOWN: dict[str, Callable[[Path], object]] = {
    "a log": lambda _: _logged(live=False),
    "a log on a terminal": lambda _: _logged(live=True),
    "a line": lambda _: tell(f"zeromt: error: {URLS['S3'][0]}"),
    "an error": lambda _: code_of(UserError(f"at {URLS['S3'][0]}")),
    "a traceback": lambda _: _failed(),
    "an error of the command line": _usage,
    "an unreadable dataset": _opened,
    "an error's message": lambda _: message_of(RuntimeError(URLS["S3"][0])),
    "a note of a failure": _noted,
    "a status": _status,
}


@pytest.mark.parametrize("way", SHOWN)
def test_nothing_shown_has_it(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEROMT_LAUNCH_ID", "launch")
    try:
        found = SHOWN[way](tmp_path)
    except SystemExit:
        found = ""
    shown = f"{found}{''.join(capsys.readouterr())}"
    assert "Signature=***" in shown
    assert SECRET not in shown
