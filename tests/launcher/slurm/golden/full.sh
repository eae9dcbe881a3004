#!/bin/bash
#SBATCH --job-name=mt
#SBATCH --chdir='/home/me/my work'
#SBATCH --output=/home/me/50%%/logs/mt-%j.out
#SBATCH --open-mode=append
#SBATCH --time=60
#SBATCH --cpus-per-task=96
#SBATCH --nodes=2-4
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --gpus-per-node=8
#SBATCH --partition=gpu
#SBATCH --comment='it'"'"'s "x" # \\ $(b)'
#SBATCH --exclusive
#SBATCH --nice=5
# Made by `zeromt launch slurm` of launcher/slurm/site.sh and train.sh.

limits=(--max-restarts 3 --max-requeues 5 --link 1)
run='runs/my run'
config='configs/runs/my run.yaml'
overrides=(seed=2 'name=a;b' 'output=it'"'"'s')
node_options=(--nproc 2)
log=/home/me/50%/logs/mt
python=/venv/bin/python
modules=(cuda/12.4 'a b')
sources=('/opt/my env/activate')
environment=(NCCL_IB_HCA=mlx5 'X=a $(b) '"'"'c'"'"'')
container=()
step_options=()
once=()

say() {
    printf 'zeromt: job %s: %s\n' "$SLURM_JOB_ID" "$*" >&2
}

if ((${#modules[@]})) && ! type module &>/dev/null; then
    # shellcheck disable=SC1091 # where sites define it
    source /etc/profile
fi
for module in "${modules[@]}"; do
    module load "$module" || { say "module load $module failed"; exit 1; }
done
for file in "${sources[@]}"; do
    # shellcheck disable=SC1090
    source -- "$file" || { say "source $file failed"; exit 1; }
done
for pair in "${environment[@]}"; do
    declare -x "$pair"
done
if [[ $SLURM_CPUS_PER_TASK ]]; then step_options+=(--cpus-per-task="$SLURM_CPUS_PER_TASK"); fi
job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}
code_file=$log-$job.code

# leave CODE: note the exit code for whoever waits for this job, and end with it.
leave() {
    echo "$1 $job${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}" >"$code_file"
    exit "$1"
}

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
