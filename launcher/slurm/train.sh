# shellcheck disable=SC2317 # the traps call it
# forward SIGNAL: ask the ranks to save and stop. USR1 is the time limit or a preemption, TERM is scancel. srun kills at TERM.
forward() {
    say "SIG$1: asking the ranks to save and stop"
    asked=${asked:-$1}
    if [[ $step ]]; then kill -s USR1 "$step" 2>/dev/null; fi
}
asked=
step=
trap 'forward USR1' USR1
trap 'forward TERM' TERM

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || exit 1
number=0
code=0
start=none
while true; do
    # What the run's files say decides: srun's exit code may be that of a process that it killed. A container may print
    # a banner before the answer.
    answer=$("${once[@]}" "${container[@]}" "$python" -P -m launcher.slurm.decide "$run" "$start" \
        --code "$code" --signal "${asked:-none}" "${limits[@]}" | tail -n 1)
    read -r action last <<<"$answer"
    case $action in
    start) ;;
    requeue)
        scontrol requeue "$SLURM_JOB_ID" && exit "$last"
        say "cannot be put back in the queue; submit it again"
        leave "$last"
        ;;
    end) leave "$last" ;;
    exit) exit "$last" ;; # it may come again, so no exit code is left
    *)
        say "$python on $SLURMD_NODENAME has decided nothing; see above"
        if [[ $asked == TERM ]]; then exit 1; fi # it was killed, too
        leave 1
        ;;
    esac
    number=$((number + 1))
    start=$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-$number
    # ALL, because with SBATCH_EXPORT=NONE srun would drop what was set above.
    srun --export=ALL --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
        --kill-on-bad-exit=1 "${step_options[@]}" "${container[@]}" "$python" -P -m zeromt launch node "$config" \
        --nnodes "$SLURM_JOB_NUM_NODES" --job-id "$start" \
        --rendezvous "${hosts%%$'\n'*}:$((10000 + (16 * SLURM_JOB_ID + number) % 20000))" \
        "${node_options[@]}" -- "${overrides[@]}" &
    step=$!
    if [[ $asked ]]; then kill -s USR1 "$step" 2>/dev/null; fi
    wait "$step"
    code=$?
    while kill -0 "$step" 2>/dev/null; do # a signal ends a wait
        wait "$step"
        code=$?
    done
    step=
done
