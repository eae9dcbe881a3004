#!/bin/bash
#SBATCH --job-name=mt
#SBATCH --chdir='/home/me/my work'
#SBATCH --output='/home/me/prepare-%A_%a.out'
#SBATCH --open-mode=append
#SBATCH --time=0-01:00:00
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --array=1-4
#SBATCH --requeue
#
# Made by `zeromt launch slurm --array` from its template launcher/slurm/array.sh: a part of a command, or the parts'
# merge.

words=(prepare 'configs/runs/my run.yaml' -- seed=2 'name=a;b' 'output=it'"'"'s')
python=/venv/bin/python
modules=()
sources=()
environment=()
container=()
srun_options=()
parts=4

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
ended=$ZEROMT_ENDED # a file for the exit code; jobs that this one sends must not write it
unset ZEROMT_ENDED
if [[ $SLURM_CPUS_PER_TASK ]]; then srun_step=(--cpus-per-task="$SLURM_CPUS_PER_TASK"); fi

if [[ $SLURM_ARRAY_TASK_ID ]]; then share=(--part "$((SLURM_ARRAY_TASK_ID - ${SLURM_ARRAY_TASK_MIN:-1} + 1))/${SLURM_ARRAY_TASK_COUNT:-$parts}"); else share=(--merge); fi
# ALL, because with SBATCH_EXPORT=NONE srun would drop what was set above.
srun --export=ALL --nodes=1 --ntasks=1 "${srun_step[@]}" "${srun_options[@]}" \
    "${container[@]}" "$python" -P -m zeromt "${words[0]}" "${share[@]}" "${words[@]:1}"
code=$?
if [[ $ended ]] && ((code || !SLURM_ARRAY_TASK_ID)); then
    echo "$code ${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}" >"$ended" # a part only if it has failed
fi
exit "$code"
