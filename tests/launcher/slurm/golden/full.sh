#!/bin/bash
#SBATCH --job-name=mt
#SBATCH --chdir='/home/me/my work'
#SBATCH --output='/home/me/my work/slurm-%j.out'
#SBATCH --open-mode=append
#SBATCH --time=0-01:00:00
#SBATCH --partition=gpu
#SBATCH --account=mt-2026
#SBATCH --qos=normal
#SBATCH --constraint='a100|h100'
#SBATCH --reservation=r1
#SBATCH --exclude='n9'
#SBATCH --licenses=scratch:2,matlab
#SBATCH --mail-user=me@example.org
#SBATCH --mail-type=FAIL,TIME_LIMIT_90
#SBATCH --cpus-per-task=96
#SBATCH --mem=480G
#SBATCH --exclusive
#SBATCH --nodes=2-4
#SBATCH --nodelist='n[1-4],gpu-07'
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=h100:8
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#
# Made by `zeromt launch slurm` from its template launcher/slurm/train.sh. One torchrun runs on each node; a warning
# before the time limit or a preemption makes the ranks save, and the job goes back to the queue.

config='configs/runs/my run.yaml'
run='runs/my run'
overrides=(seed=2 'name=a;b' 'output=it'"'"'s')
python=/venv/bin/python
modules=(cuda/12.4 'a b')
sources=('/opt/my env/activate')
environment=(NCCL_IB_HCA=mlx5 'X=a $(b) '"'"'c'"'"'')
container=()
srun_options=()
node_options=(--nproc 2 --max-restarts 3 --join-timeout 300 --node-timeout 15 --interface ib0)
link=1
max_requeues=5

say() {
    printf 'zeromt: job %s: %s\n' "$SLURM_JOB_ID" "$*" >&2
}

# one MODULE ...: run a module of zeromt's once, on this node. Its last line is its answer; a container may print a banner before.
one() {
    if ((${#srun_options[@]})); then
        srun --export=ALL --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME" "${srun_options[@]}" "$python" -P -m "$@"
    else
        "${container[@]}" "$python" -P -m "$@"
    fi
}

# shellcheck disable=SC2317 # the traps call it
# forward SIGNAL: ask the ranks to save and stop. USR1 is the time limit or a preemption, TERM is scancel.
forward() {
    say "SIG$1: asking the ranks to save and stop"
    asked=${asked:-$1}
    if [[ $step ]]; then kill -s "$1" "$step" 2>/dev/null; fi
}
asked=
step=
trap 'forward USR1' USR1
trap 'forward TERM' TERM

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
ended=$ZEROMT_ENDED # a file for the exit code; jobs that this one sends must not write it
unset ZEROMT_ENDED
if [[ $SLURM_CPUS_PER_TASK ]]; then srun_step=(--cpus-per-task="$SLURM_CPUS_PER_TASK"); fi

# Asked before srun: it would end with the largest code of its tasks, and 2 is less than that of those that it kills.
case $(one launcher.slurm.decide begin "$run" --link "$link" | tail -n 1) in
refuse) exit 2 ;;
end) exit 0 ;;
esac

# By it the nodes know one another. srun hands it over in the tasks' environment, which no other user can read.
ZEROMT_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n') && export ZEROMT_SECRET
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || exit 1
# ALL, because with SBATCH_EXPORT=NONE srun would drop what was set above.
srun --export=ALL --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    --kill-on-bad-exit=1 "${srun_step[@]}" "${srun_options[@]}" \
    "${container[@]}" "$python" -P -m zeromt launch node "$config" \
    --nnodes "$SLURM_JOB_NUM_NODES" --rendezvous "${hosts%%$'\n'*}:$((20000 + SLURM_JOB_ID % 20000))" \
    --job-id "$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}" "${node_options[@]}" -- "${overrides[@]}" &
step=$!
if [[ $asked ]]; then kill -s "$asked" "$step" 2>/dev/null; fi
wait "$step"
code=$?
while kill -0 "$step" 2>/dev/null; do # a signal ends a wait
    wait "$step"
    code=$?
done
wait "$step" 2>/dev/null # the last word, where a signal came with it; 127 where it is known already
last=$?
if ((last != 127)); then code=$last; fi
step=

# What is there says what follows: finished, stopped by a user, to be put back in the queue.
decision=$(one launcher.slurm.decide end "$run" --code "$code" --signal "${asked:-none}" \
    --max-requeues "$max_requeues" | tail -n 1)
if [[ $decision == requeue ]]; then
    scontrol requeue "$SLURM_JOB_ID" || say "cannot be put back in the queue; submit it again"
elif [[ $ended ]]; then
    echo "$code $SLURM_JOB_ID" >"$ended"
fi
exit "$code"
