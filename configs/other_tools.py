"""Other programs' words for settings, and the shapes by which their configurations are known.

A table, because a guess by likeness leads astray: `max_steps` looks like `max_epochs` and is `max_updates`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_TOKENS = "stream.source_tokens and stream.target_tokens (padded tokens of a micro-batch, not sentences)"
_RESUMING = "not needed: the same command resumes; `--from RUN` begins with another run's weights"
_WORDS = {
    "training.max_updates": "max_steps max_update max_updates num_steps num_train_steps total_steps train_steps steps "
    "max_train_steps after_batches updates num_updates iterations max_iters",
    "training.max_epochs": "epochs epoch max_epoch num_epochs num_train_epochs after_epochs train_epochs",
    "training.max_minutes": "stop_time_hours max_time max_seconds",
    "training.early_stopping": "early_stopping early_stop patience early_stopping_patience",
    "training.ema_decay": "ema exponential_smoothing average_decay moving_average_decay",
    "training.log_every": "log_interval logging_steps logging_freq report_every disp_freq log_every_n_steps",
    "training.deterministic": "full_determinism",
    _TOKENS: "batch_size batchsize max_tokens tokens_in_batch train_batch_size mini_batch mini_batch_words batch_type "
    "per_device_train_batch_size train_micro_batch_size_per_gpu batch_tokens max_tokens_per_batch batch_max_tokens",
    "stream.max_rows": "max_sentences",
    "stream.micro_batches (K, in an update of all ranks)": "update_freq accum_count accum_steps accumulate_grad_batches"
    " gradient_accumulation gradient_accumulation_steps grad_accum batch_multiplier optimizer_delay update_interval",
    "stream.window_pairs": "bucket_size maxi_batch queue_size shuffle_buffer buffer_size",
    "stream.workers": "num_workers dataloader_num_workers data_workers",
    "stream.datasets": "datasets train_data prepared_data data_bin",
    "stream.temperature": "sampling_temperature t_sampling",
    "optimizer.lr": "learning_rate learn_rate lr initial_learning_rate base_lr",
    "optimizer.clip_norm": "max_grad_norm clip_grad_norm gradient_clipping gradient_clip_val clip_grad",
    "optimizer.beta1 and optimizer.beta2": "adam_betas betas optimizer_params",
    "optimizer.eps": "adam_eps adam_epsilon",
    "optimizer": "optim",
    "schedule.warmup_updates": "warmup warmup_steps num_warmup_steps lr_warmup learning_rate_warmup warmup_ratio",
    "schedule": "lr_scheduler scheduler lr_scheduler_type decay_method scheduling learning_rate_scheduler_type",
    "loss.label_smoothing": "label_smoothing_factor smoothing",
    "engine.precision": "fp16 bf16 amp mixed_precision half dtype model_dtype fp32 tf32",
    "engine.device": "use_cuda no_cuda cuda cpu use_cpu use_gpu",
    "engine.compile": "torch_compile jit",
    "engine.zero_stage": "zero zero_sharding ddp_backend deepspeed fsdp strategy zero_optimization",
    "engine.offload_optimizer": "cpu_offload offload",
    "model.activation_checkpointing": "gradient_checkpointing checkpoint_activations use_ckpting",
    "model.d_model": "hidden_size dim_emb embed_dim encoder_embed_dim rnn_size transformer_model_size word_vec_size "
    "hidden_dim emb_size embedding_dim",
    "model.feed_forward.d_ff": "ffn_dim transformer_dim_ffn transformer_ff encoder_ffn_embed_dim intermediate_size "
    "ff_size feed_forward_size transformer_feed_forward_num_hidden",
    "model.attention.num_heads": "num_heads heads encoder_attention_heads transformer_heads "
    "transformer_attention_heads num_attention_heads",
    "model.encoder_layers and model.decoder_layers": "num_layers layers n_layers num_hidden_layers",
    "model.encoder_layers": "enc_depth enc_layers num_encoder_layers",
    "model.decoder_layers": "dec_depth dec_layers num_decoder_layers",
    "model.tied_embeddings": "tied_embeddings_all share_embeddings share_all_embeddings share_decoder_embeddings "
    "tie_word_embeddings share_decoder_input_output_embed weight_tying",
    "model.dropout": "transformer_dropout hidden_dropout",
    "model.attention.dropout": "attention_dropout",
    "model.attention.bias": "attention_bias",
    "model.attention.output_bias": "attention_output_bias",
    "model.feed_forward": "activation activation_fn activation_function hidden_act",
    "model.feed_forward.dropout": "activation_dropout relu_dropout",
    "model.norm.eps": "norm_eps layer_norm_eps",
    "model.residual": "norm_position normalize_before encoder_normalize_before decoder_normalize_before",
    "preset": "arch architecture model_type model_name task",
    "evaluation.every_updates": "eval_steps valid_steps valid_freq validation_freq validate_interval_updates "
    "eval_every validate_every val_check_interval evaluation_strategy eval_strategy eval_freq",
    "evaluation.metrics": "eval_metrics valid_metrics eval_metric validation_metrics best_checkpoint_metric eval_bleu",
    "evaluation.search.beam": "beam_size num_beams beam",
    "evaluation.search.length_penalty": "lenpen normalize alpha length_penalty_alpha",
    "checkpoint.every_updates": "save_steps save_every save_freq save_interval_updates save_checkpoint_steps "
    "checkpoint_interval save_interval",
    "checkpoint.keep_last": "keep_checkpoint keep_checkpoints keep_last_epochs save_total_limit keep_interval_updates "
    "keep_last_ckpts",
    "checkpoint.best_by": "metric_for_best_model early_stopping_metric",
    "output and name": "output_dir save_dir save_model model_dir exp_dir run_dir log_dir experiment_dir",
    "prepare.train": "train train_sets train_files train_file corpus_1 source_train trainpref data",
    "prepare.valid": "valid valid_sets dev valid_data validation_source validpref validation_file",
    "prepare.test": "test testpref test_file",
    "prepare.train.source": "src source src_file train_src path_src",
    "prepare.train.target": "trg tgt target tgt_file train_tgt path_tgt",
    "prepare.source_language": "source_lang src_lang",
    "prepare.target_language": "target_lang tgt_lang",
    "prepare.tokenizer.vocab_size": "vocab_size src_vocab_size dim_vocabs bpe_num_merges",
    "prepare.tokenizer.path": "vocabs vocab src_vocab tgt_vocab tokenizer_name spm_model sentencepiece_model",
    "prepare.max_pieces": "max_length max_len max_seq_length max_source_positions max_source_length src_seq_length "
    "max_seq_len",
    "trackers=[{kind: wandb}]": "wandb wandb_project use_wandb",
    "trackers=[{kind: tensorboard}]": "tensorboard tensorboard_logdir",
    "trackers": "report_to logger loggers",
    "phases": "stages curriculum",
    "gpus_per_node of the site's profile (--set gpus_per_node=N)": "gres gpus_per_task gpus_per_socket",
    "cpus_per_node of the site's profile (--set cpus_per_node=N)": "cpus_per_task cpus_per_gpu",
    "memory of the site's profile (--set memory=SIZE)": "mem mem_per_cpu mem_per_gpu",
    "not needed: a node's task starts a process for each of its gpus_per_node": "ntasks ntasks_per_node tasks_per_node",
    _RESUMING: "resume resume_from resume_from_checkpoint restore restore_file train_from load_model auto_resume "
    "from_checkpoint continue resume_if_exists ckpt_path load_checkpoint",
}
"""What to use here, and other programs' words for it."""
MEANT = {word: here for here, words in _WORDS.items() for word in words.split()}
_COMMANDS = {
    "`zeromt train` or `zeromt launch`": "fit run",
    "not needed: `zeromt train` or `zeromt launch` resumes when it is given again": "resume continue restart",
    "`zeromt train --from RUN`": "finetune fine-tune",
    "`zeromt init`": "new setup start quickstart configure",
    "`zeromt prepare`": "preprocess binarize tokenize data",
    "`zeromt translate`": "generate decode predict infer inference interactive",
    "`zeromt translate`, which can stay open; docs/tutorials/serving.md has a server": "serve server api",
    "`zeromt evaluate`": "test eval bleu",
    "`tensorboard --logdir FOLDER`, which comes with zeromt": "tensorboard board",
    "`zeromt status`": "list ls ps runs show",
    "`zeromt log`": "logs tail",
    "`zeromt stop`": "cancel kill",
    "`zeromt export`, or `zeromt import` for what others wrote": "convert release",
    "`zeromt average`": "average-checkpoints avg",
    "`zeromt doctor`": "check env",
}
_MEANT_COMMANDS = {word: here for here, words in _COMMANDS.items() for word in words.split()}
KINDS = {
    ("optimizer", "adam"): "adamw with weight_decay=0 is Adam",
    ("schedule", "noam"): "inverse_sqrt is that of Vaswani et al. (2017)",
    ("schedule", "inverse_square_root"): "did you mean inverse_sqrt?",
    ("attention", "flash"): "multi_head; engine.kernels chooses how it is computed",
}
"""Other programs' names of kinds, by family."""

_SHAPES = {
    "Marian": "train-sets vocabs learn-rate mini-batch mini-batch-fit mini-batch-words maxi-batch dim-emb enc-depth "
    "dec-depth valid-freq valid-sets valid-metrics dim-vocabs transformer-heads lr-warmup workspace after-epochs "
    "beam-size models disp-freq save-freq label-smoothing transformer-dropout tied-embeddings-all",
    "fairseq": "common distributed_training dataset optimization criterion lr_scheduler task generation bmuf eval_lm",
    "OpenNMT-py or Eole": "save_data src_vocab tgt_vocab save_model train_steps valid_steps save_checkpoint_steps "
    "world_size gpu_ranks data.corpus_1 data.valid.path_src src_seq_length transforms n_sample training.train_steps "
    "training.batch_type training.accum_count training.world_size model.architecture encoder_type decoder_type",
    "JoeyNMT": "data.src data.trg training.batch_type training.batch_size training.batch_multiplier model.encoder "
    "model.decoder testing data.dev training.epochs training.learning_rate training.model_dir training.optimizer",
    "Transformers": "per_device_train_batch_size num_train_epochs output_dir model_name_or_path do_train save_steps "
    "eval_steps predict_with_generate source_lang target_lang learning_rate warmup_steps",
    "NeMo": "exp_manager trainer model.train_ds model.validation_ds model.optim model.encoder_tokenizer do_training",
    "Sockeye": "prepared_data shared_vocab transformer_model_size checkpoint_interval initial_learning_rate "
    "validation_source validation_target transformer_attention_heads weight_tying_type max_num_checkpoint_not_improved",
    "DeepSpeed": "train_batch_size train_micro_batch_size_per_gpu zero_optimization gradient_accumulation_steps "
    "gradient_clipping bf16.enabled fp16.enabled steps_per_print zero_allow_untested_optimizer",
    "OpusTrainer": "datasets stages modifiers trainer",
}
"""Keys of other programs' configurations; none of them is ours at that place."""
_FEWEST = 2
"""Keys of a shape: one alone may be a misplaced setting."""
_OURS = frozenset(
    ("prepare", "stream", "engine", "evaluation", "schedule", "preset", "phases", "stability", "supervision")
)
"""Sections that no other program has: who writes one of them means zeromt."""
_SHOWN = 6


def meant(name: object) -> str | None:
    """What to use for another program's word: fields, or advice; None if the word is not known."""
    return MEANT.get(str(name).lower().replace("-", "_"))


def meant_command(name: str) -> str | None:
    """What to use for another program's command; None if it is not known."""
    return _MEANT_COMMANDS.get(name.lower())


def foreign(tree: Any) -> str | None:
    """What to say of another program's configuration; None if it is not known to be one.

    Args:
        tree: plain dictionaries.
    """
    if _OURS & set(tree):
        return None
    leaves = list(_paths(tree))
    matches = {
        program: [key for key in keys.split() if any(f"{leaf}.".startswith(f"{key}.") for leaf in leaves)]
        for program, keys in _SHAPES.items()
    }
    program = max(matches, key=lambda name: len(matches[name]))
    if len(matches[program]) < _FEWEST:
        return None
    pairs = (f"{leaf} is {here}" for leaf in leaves if (here := meant(leaf.rpartition(".")[2])) is not None)
    known = list(dict.fromkeys(pairs))[:_SHOWN]
    shown = f"; here {'; '.join(known)}" if known else ""
    return f"this is a configuration of {program}: docs/other-systems.md says how to move{shown}"


def _paths(tree: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """The dotted path of every leaf of a tree; a list is one."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, f"{where}{key}.")
        else:
            yield f"{where}{key}"
