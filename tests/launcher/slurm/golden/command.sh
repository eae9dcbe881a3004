#!/bin/bash
#SBATCH --job-name=mt
#SBATCH --chdir='/home/me/my work'
#SBATCH --output='/home/me/step.log'
#SBATCH --open-mode=append
#SBATCH --time=0-01:00:00
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=4
#SBATCH --requeue
#
# Made by zeromt from its template launcher/slurm/command.sh: one command, whose exit code is left in a file.

words=(/venv/bin/python -P -m zeromt export 'a b' -o c)
modules=()
sources=()
environment=()
container=(apptainer exec --nv --bind /data:/data '/images/z t.sif')
srun_options=()
stdout='it'"'"'s out'

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

if [[ -s $ended ]]; then exit 0; fi # it was put back in the queue after the command had ended
if [[ $stdout ]]; then exec >"$stdout" || exit 1; fi
# ALL, because with SBATCH_EXPORT=NONE srun would drop what was set above.
srun --export=ALL --nodes=1 --ntasks=1 "${srun_step[@]}" "${srun_options[@]}" "${container[@]}" "${words[@]}"
code=$?
echo "$code $SLURM_JOB_ID" >"$ended"
exit "$code"
