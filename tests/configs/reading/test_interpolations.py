"""`${...}`: what a person's own file may say, and that a saved one is read as plain text and keeps no secret."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from configs import RunConfig, UserError, load_run, load_saved, save_run
from configs.load import dump_run
from configs.reading.variables import as_saved
from launcher.slurm.profile import load_profile
from trainer.checkpoint.resume import changed_fields
from trainer.runs.failure import note_failure

SECRET = "s3cr3t"
URL = "https://host/${oc.env:ZEROMT_SECRET}/data"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROMT_SECRET", SECRET)


def own(folder: Path, text: str, *overrides: str) -> RunConfig:
    path = folder / "mine.yaml"
    path.write_text(text)
    return load_run(str(path), overrides)


def saved(folder: Path, text: str) -> Path:
    """A configuration in a run's folder, with these settings in place of its own."""
    run = folder / "runs" / "run"
    (run / "checkpoints").mkdir(parents=True)
    given = [yaml.safe_load(one) for one in (dump_run(RunConfig()), text)]
    (run / "config.yaml").write_text(yaml.safe_dump(given[0] | given[1]))
    return run / "config.yaml"


def test_environment_in_ones_own_file_and_settings(tmp_path: Path) -> None:
    config = own(
        tmp_path,
        "output: ${oc.env:ZEROMT_SECRET}/runs\n"
        f"stream: {{datasets: [{{path: '{URL}', weight: 1}}], cache: '${{output}}/cache'}}\n",
        'evaluation.queued=[{name: q, command: "score ${oc.env:ZEROMT_SECRET}"}]',
        "prepare.root=${oc.env:ZEROMT_UNSET,somewhere}",
    )
    assert config.output == f"{SECRET}/runs"
    assert config.stream.datasets[0].path == f"https://host/{SECRET}/data"
    assert config.stream.cache == f"{SECRET}/runs/cache"
    assert config.evaluation.queued[0].command == ["score", SECRET]
    assert config.prepare.root == "somewhere"


def test_value_of_a_variable_is_not_saved(tmp_path: Path) -> None:
    text = f"stream: {{datasets: [{{path: '{URL}', weight: 1}}], cache: '${{prepare.root}}/cache'}}\n"
    text += f"prepare: {{root: '{URL}'}}\n"
    config = own(tmp_path, text, 'evaluation.queued=[{name: q, command: "score ${oc.env:ZEROMT_SECRET}"}]')
    path = tmp_path / "config.yaml"
    save_run(config, path)
    assert SECRET not in path.read_text()
    assert SECRET not in str(dataclasses.asdict(as_saved(config)))
    again = load_saved(path)
    assert again.stream.datasets[0].path == again.prepare.root == URL
    assert again.stream.cache == f"{URL}/cache"
    assert again.evaluation.queued[0].command == ["score", "${oc.env:ZEROMT_SECRET}"]
    assert changed_fields(again, config) == {}
    save_run(again, path)
    assert load_saved(path) == again


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("schedule.kind=${oc.env:ZEROMT_KIND,cosine}", "schedule.kind"),
        ("engine.precision=${oc.env:ZEROMT_KIND,bf16}", "engine.precision"),
        ("seed=${oc.env:ZEROMT_KIND,3}", "seed"),
        ("name=${oc.env:ZEROMT_SECRET}", "name"),
    ],
)
def test_a_variable_is_only_where_any_text_may_be(setting: str, field: str, tmp_path: Path) -> None:
    """Else the saved configuration, which has its name alone, could not be read."""
    with pytest.raises(UserError, match=rf"^{field}: "):
        own(tmp_path, "", setting)


@pytest.mark.parametrize("url", ["https://me:pw@host/x", "https://me:${oc.env:ZEROMT_SECRET}@host/x", "redis://:pw@h"])
def test_password_in_a_url_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"prepare\.root: the URL contains a password") as caught:
        own(tmp_path, f"prepare: {{root: '{url}'}}\n")
    assert SECRET not in str(caught.value)
    assert own(tmp_path, "prepare: {root: 's3://bucket/key=1/x@v1?page=2:3'}\n").prepare.root.startswith("s3://")


def test_messages_have_no_value_of_a_variable_in_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROMT_LAUNCH_ID", "launch")
    url = own(tmp_path, f"prepare: {{root: '{URL}'}}\n").prepare.root
    note_failure(ValueError(f"at {url}/train.en"), tmp_path, 0)
    [note] = (tmp_path / "failures").rglob("*.json")
    assert SECRET not in note.read_text()
    assert f"at {URL}/train.en" in note.read_text()


@pytest.mark.parametrize(
    "form", [URL, "${output}", "${oc.decode:5}", "\\${x}", "${oc.env:ZEROMT_UNSET,x}", "$${x}", "a/${x}"]
)
def test_saved_file_is_plain_text(form: str, tmp_path: Path) -> None:
    path = saved(tmp_path, "stream: {datasets: [{path: '" + form + "', weight: 1}]}")
    expected = form.removeprefix("\\") if form.startswith("\\$") else form
    assert load_saved(path).stream.datasets[0].path.count(expected) == 1
    assert SECRET not in dump_run(load_saved(path))


def test_training_with_a_saved_file_asks_for_what_it_does_not_keep(tmp_path: Path) -> None:
    path = saved(tmp_path, f"stream: {{datasets: [{{path: '{URL}', weight: 1}}]}}")
    with pytest.raises(UserError) as caught:
        load_run(str(path))
    assert str(caught.value).startswith(f"CONFIG: {path}: stream.datasets.0.path: ")
    assert URL in str(caught.value)
    mine = load_run(str(path), [f"stream.datasets.0.path={URL}"])  # a setting is one's own
    assert mine.stream.datasets[0].path == f"https://host/{SECRET}/data"
    assert SECRET not in dump_run(mine)


@pytest.mark.parametrize(
    "form",
    ["${oc.decode:'5'}", "${oc.create:{}}", "${oc.select:seed}", "${oc.deprecated:seed}", "${oc.dict.keys:prepare}",
     "${${seed}}", "${oc.env:${name}}", "${mine:1}", "a ${seed} ${oc.decode:x}"],
)  # fmt: skip
def test_other_resolvers_are_refused(form: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mine\.yaml: output: "):
        own(tmp_path, f'output: "{form}"\n')
    with pytest.raises(UserError, match=r"^override: "):
        own(tmp_path, "", f'output="{form}"')
    site = tmp_path / "site.yaml"
    site.write_text(f'account: "{form}"\n')
    with pytest.raises(UserError, match="account: "):
        load_profile(str(site), [])
