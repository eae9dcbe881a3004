"""What a configuration refuses, in which words, and that what it accepts survives a round trip."""

from importlib import resources
from pathlib import Path

import pytest

from configs import ConfigError, ModelSection, UserError, load_run, preset_model, save_run
from configs.components import make
from configs.load import dump_run
from configs.reading.shipped import shipped_presets
from tests.model.flat import flat

SHIPPED = sorted(
    p.name.removesuffix(".yaml") for p in resources.files("configs.runs").iterdir() if p.name.endswith(".yaml")
)


def write(folder: Path, text: str) -> str:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def problems(name: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_run(name, overrides)
    lines = str(caught.value).splitlines()
    assert lines == caught.value.problems
    return lines


# (setting, what the line must say: field, value, what is allowed)
WRONG = [
    ("optimizer.beta3=0.5", "optimizer.beta3: unknown key; did you mean optimizer.beta2?"),
    ("modle.d_model=4", "modle: unknown key; did you mean model?"),
    (
        "evaluation.search.beems=4",
        "evaluation.search.beems: unknown key; did you mean evaluation.search.beam?",
    ),
    ('model.d_model="512"', "model.d_model: '512'; allowed is a whole number"),
    ("model.d_model=512.5", "model.d_model: 512.5; allowed is a whole number"),
    ("seed=true", "seed: true; allowed is a whole number"),
    ("training.tensorboard=1", "training.tensorboard: 1; allowed is true or false"),
    ("optimizer.lr=fast", "optimizer.lr: 'fast'; allowed is a number"),
    ("optimizer.lr=", "optimizer.lr: null; allowed is a number"),
    ("optimizer.lr=.nan", "optimizer.lr: nan; allowed is a finite number"),
    ("optimizer.lr=.inf", "optimizer.lr: inf; allowed is a finite number"),
    ("optimizer.lr=-0.1", "optimizer.lr: -0.1; allowed is greater than 0"),
    ("optimizer.beta1=1", "optimizer.beta1: 1; allowed is less than 1"),
    ("checkpoint.keep_last=1", "checkpoint.keep_last: 1; allowed is greater than or equal to 2"),
    ("engine.zero_stage=4", "engine.zero_stage: 4; allowed is 0, 1, 2 or 3"),
    ("engine.precision=fp8", "engine.precision: 'fp8'; allowed is 'auto', 'fp32', 'bf16' or 'fp16'"),
    ("model=512", "model: 512; write a section with keys"),
    ("model.d_model.x=1", "model.d_model: a section; allowed is a whole number"),
    ("name=a/b", "name: 'a/b'; allowed is text that matches ^[A-Za-z0-9]"),
    ("stream.datasets=[{weight: 2}]", "stream.datasets.0.path: missing"),
    ("stream.datasets=[{path: a}, {path: b, weight: 2}]", "stream.datasets: a has no weight, but others have"),
    ("stream.datasets=[{path: a}, {path: a}]", "stream.datasets: a is named more than once; name it once"),
    ("stream={datasets: [{path: a, weight: 1}], temperature: 5}", "stream.temperature: 5 with weights; use one"),
    ("stream.augment=[{kind: typo}]", "stream.augment.0.kind: there is no kind 'typo'; did you mean typos?"),
    ("stream.augment=[{kind: typos, probability: 1.5}]", "stream.augment.0.probability: 1.5; allowed is less than or"),
    ("stream.augment=[bpe_dropout, typos]", "stream.augment.0: bpe_dropout stands before typos; put it last"),
    ("stream.augment=[bpe_dropout, unigram_sampling]", "stream.augment.0: bpe_dropout stands before unigram_sampling"),
    ("stream.augment=[{kind: typos, datasets: [other]}]", "stream.augment.0.datasets: other is not in stream.datasets"),
    ("stream.augment=[{kind: noise, alphabet_of: 'a b'}]", "stream.augment.0.alphabet_of: holds white space"),
    ("stream.augment=[{kind: prefix, text: 'a b'}]", "stream.augment.0.text: 'a b'"),
    ("prepare.tokenizer.tags=['>>fra']", "prepare.tokenizer.tags.0: '>>fra'; allowed is text that matches"),
    (
        "prepare.target_tag='>>fra<<'",
        "prepare.target_tag: >>fra<< is not in tokenizer.tags (none); add it there, or use one of them",
    ),
    ("prepare.train={tsv: [a], jsonl: [b]}", "prepare.train.tsv, jsonl: given together; use one format"),
    (
        "prepare.cleaning.max_length_ratio=0.5",
        "prepare.cleaning.max_length_ratio: 0.5; allowed is greater than or equal to 1",
    ),
    ("prepare.train.source=[a]", "prepare.train.source: 1 files, target: 0 files; both need the same number"),
    ("model.attention.num_heads=7", "model.attention.num_heads: 7 must divide d_model=512, unless head_width is given"),
    (
        "engine.zero_optimization.cpu_offload=true",
        "engine.zero_optimization.cpu_offload: DeepSpeed removed it; instead use engine.offload",
    ),
    ("engine.zero_optimization.stage=2", "engine.zero_optimization.stage: set by zeromt itself;"),
    (
        "prepare.tokenizer.vocabulary=separate",
        "model.tied_embeddings: three-way with prepare.tokenizer.vocabulary=separate; set it to decoder",
    ),
    (
        "stream.target_tokens=512",
        "prepare.max_pieces: 512 pieces and EOS do not fit into a micro-batch of 512 tokens",
    ),
    (
        "prepare.max_pieces=2000",
        "model.max_positions: 1024 is too small for prepare.max_pieces=2000 and EOS; set it to at least 2001",
    ),
    ("evaluation.search.sampler.top_k=4", "evaluation.search.sampler.kind: missing; name a kind"),
    (
        "evaluation.search.top_k=4",
        "evaluation.search.top_k: unknown key; did you mean evaluation.search.sampler.top_k?",
    ),
    ("evaluation.search.sampler=trunc", "sampler.kind: there is no kind 'trunc'; did you mean truncated?"),
    (
        "evaluation.search.sampler={kind: truncated, topk: 3}",
        "evaluation.search.sampler.topk: unknown key; did you mean",
    ),
    ("schedule=zigzag", "schedule.kind: there is no kind 'zigzag'; known are constant, cosine"),
    ("schedule.kind=3", "schedule.kind: 3; allowed is the name of a kind"),
    ("schedule=3", "schedule: 3; write a section with keys"),
    ("trackers=[{}, {folder: x}]", "trackers.1.folder: unknown key; "),
    ("prepare.filters=[empty, {limit: 1}]", "prepare.filters.1.kind: missing; name a kind"),
    ("prepare.filters=[empty, 3]", "prepare.filters.1: 3; write a section with keys"),
    ("prepare.filters=empty", "prepare.filters: 'empty'; allowed is a list"),
    ("prepare.filters={kind: empty}", "prepare.filters: a section; allowed is a list"),
    ("prepare.train={jsonl: [a], header: true}", "prepare.train.header: true without tsv; remove it"),
    ("prepare.train={jsonl: [a], inline_markup: keep}", "prepare.train.inline_markup: keep without tmx; remove it"),
    (
        "prepare={scores: {qe: {command: [a]}}, filters: [{kind: threshold, score: que, at_least: 1.0}]}",
        "prepare.filters.0.score: there is no score 'que'; did you mean qe?",
    ),
    (
        "prepare={scores: {qe: {command: [a]}}, filters: [{kind: threshold, score: qe}]}",
        "prepare.filters.0.at_least: null, and no at_most; give one",
    ),
    (
        "prepare={scores: {qe: {command: [a]}}, train: {tsv: [a, b], scores: {qe: c}}}",
        "prepare.scores.qe: is a score of prepare.train too",
    ),
    (
        "prepare={valid: {tsv: [a], scores: {x: '3'}}}",
        "prepare.valid.scores: scores of a held-out set are not used",
    ),
    ("prepare={scores: {../x: {command: [a]}}}", "prepare.scores"),
    ("evaluation.search.sampler=truncated evaluation.search.beam=2", "evaluation.search.beam: 2 with a sampler"),
    ("evaluation.search.min_length_ratio=3", "evaluation.search.min_length_ratio: 3.0 is more than max_length_ratio"),
    (
        "evaluation.search.beam=256 evaluation.search.batch_tokens=8",
        "evaluation.search.beam: 256 is more than",
    ),
    (
        "schedule.kind=cosine schedule.warmup_updates=9 training.max_updates=9",
        "schedule.warmup_updates: 9 leaves no updates to decay in; it must be less than training.max_updates=9",
    ),
    (
        "engine.compile=true engine.zero_stage=3",
        "engine.compile: true at zero_stage=3, whose hooks prevent it from compiling layers; use stages 0 to 2",
    ),
]


@pytest.mark.parametrize(("settings", "expected"), WRONG, ids=[s for s, _ in WRONG])
def test_wrong_setting_gives_one_line(tmp_path: Path, settings: str, expected: str) -> None:
    overrides = [settings] if "[" in settings or "{" in settings else settings.split()
    found = problems(write(tmp_path, ""), *overrides)
    assert len(found) == 1
    assert expected in found[0]


def test_all_errors_at_once(tmp_path: Path) -> None:
    found = problems(
        write(
            tmp_path,
            "foo: 1\noptimizer: {lr: .nan, beta1: -1, beta3: 2}\n"
            'model: {attention: {num_heads: 7}}\nengine: {zero_stage: "2"}\n'
            "stream: {datasets: [{path: a}, {path: a}]}\n",
        )
    )
    for field in (
        "foo",
        "optimizer.beta3",
        "optimizer.lr",
        "optimizer.beta1",
        "model.attention.num_heads",
        "engine.zero_stage",
        "stream.datasets",
    ):
        assert sum(line.startswith(f"{field}:") for line in found) == 1, (field, found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "cannot be read"),
        ("- 1\n- 2\n", "is not a mapping; write lines such as"),
        ("seed: 1\nseed: 2\n", "duplicate key seed"),
        ("seed: ${nope}\n", "Interpolation key 'nope' not found"),
        ("seed: !!python/object/apply:os.system [true]\n", "could not determine a constructor"),
    ],
)
def test_broken_file_is_one_line(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError) as caught:
        load_run(path)
    assert expected in str(caught.value)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_key_with_a_newline_stays_on_its_line(tmp_path: Path) -> None:
    assert len(problems(write(tmp_path, ""), "x\ny=1")) == 1


def test_overrides_win_and_the_last_one_last(tmp_path: Path) -> None:
    path = write(tmp_path, "optimizer: {lr: 0.5, beta1: 0.8}\nseed: 3\n")
    run = load_run(path, ["optimizer.lr=0.25", "optimizer.lr=1e-3", "stream.datasets=[{path: x}]"])
    assert run.optimizer == make("optimizer", "adamw", lr=1e-3, beta1=0.8)
    assert run.seed == 3
    assert run.datasets[0].path == "x"


def test_exponents_are_numbers(tmp_path: Path) -> None:
    run = load_run(write(tmp_path, "optimizer: {lr: 1e-3, eps: 1E-9}\n"))
    assert run.optimizer == make("optimizer", "adamw", lr=1e-3, eps=1e-9)


def test_whole_number_where_a_fraction_may_stand(tmp_path: Path) -> None:
    assert load_run(write(tmp_path, ""), ["optimizer.clip_norm=5"]).optimizer.clip_norm == 5.0


def test_name_comes_from_the_file_unless_given(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    assert load_run(path).name == "run"
    assert load_run(path, ["name=other"]).folder == "runs/other"


class TestPresets:
    def test_defaults_then_preset_then_file_then_overrides(self, tmp_path: Path) -> None:
        path = write(tmp_path, "preset: vaswani_big\nmodel: {dropout: 0.2, attention: {num_heads: 8}}\n")
        model = load_run(path, ["model.attention.num_heads=4"]).model
        found = flat(model)
        assert (found.d_model, found.d_ff, found.dropout, found.num_heads) == (1024, 4096, 0.2, 4)
        assert model.max_positions == ModelSection().max_positions

    def test_override_names_another(self, tmp_path: Path) -> None:
        path = write(tmp_path, "preset: vaswani_big\n")
        assert load_run(path, ["preset=modern"]).model.norm.kind == "rms"
        assert load_run(path, ["preset=null"]).model == ModelSection()
        assert load_run(write(tmp_path, ""), ["preset=modern"]).model == preset_model("modern", {})

    @pytest.mark.parametrize("preset", shipped_presets())
    def test_each_loads_alone_and_survives_a_round_trip(self, preset: str, tmp_path: Path) -> None:
        run = load_run(write(tmp_path, f"preset: {preset}\n"))
        assert run.model == preset_model(preset, {})
        assert run.model != ModelSection()
        path = tmp_path / "config.yaml"
        save_run(run, path)
        assert load_run(str(path), ["name=run"]) == run
        assert "preset" not in path.read_text()

    def test_a_run_is_what_it_was_when_the_preset_changes(self, tmp_path: Path) -> None:
        path = tmp_path / "config.yaml"
        save_run(load_run("wmt_base"), path)
        assert load_run(str(path), ["preset=modern"]) == load_run("wmt_base")

    @pytest.mark.parametrize("name", ["nope", "3", "[modern]", "{a: 1}", "../runs/debug"])
    def test_unknown_one_is_refused_by_name(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"^preset: .*; use one of deep_shallow, modern, nllb_3b"):
            load_run(write(tmp_path, ""), [f"preset={name}"])

    def test_errors_beside_a_preset_are_all_named(self, tmp_path: Path) -> None:
        found = problems(write(tmp_path, "preset: modern\nmodel: {norn: rms, attention: {num_heads: 7}}\nseed: x\n"))
        assert [line.partition(":")[0] for line in found] == ["model.norn", "seed", "model.attention.num_heads"]
        assert problems(write(tmp_path, "preset: modern\nmodel: 5\n")) == ["model: 5; write a section with keys"]

    def test_model_of_a_preset(self) -> None:
        model = preset_model("notebook_gelu_dk", {"dropout": 0.25, "max_positions": 7})
        found = flat(model)
        assert (found.d_model, found.head_width, found.dropout, found.max_positions) == (64, 16, 0.25, 7)
        with pytest.raises(ConfigError) as caught:
            preset_model("modern", {"d_modle": 4, "attention": {"num_kv_heads": 3}})
        assert len(caught.value.problems) == 2


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_runs_load_and_survive_a_round_trip(name: str, tmp_path: Path) -> None:
    run = load_run(name)
    assert run.name == name
    path = tmp_path / "config.yaml"
    save_run(run, path)
    again = load_run(str(path))
    assert again == run
    assert dump_run(again) == dump_run(run)


def test_round_trip_of_every_kind_of_value(tmp_path: Path) -> None:
    settings = [
        "optimizer.eps=1e-12",
        "training.max_minutes=0.5",
        "evaluation.max_pairs=7",
        "stream.datasets=[{path: 'a b: c', weight: 2.5}]",
        "engine.zero_optimization.overlap_comm=false",
        "output='/tmp/$x # y'",
    ]
    run = load_run("debug", settings)
    save_run(run, tmp_path / "config.yaml")
    assert load_run(str(tmp_path / "config.yaml")) == run
