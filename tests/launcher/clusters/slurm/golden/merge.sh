#!/bin/bash
#SBATCH --job-name=mt
#SBATCH --chdir='/home/me/my work'
#SBATCH --output='/home/me/prepare-%A_%a.out'
#SBATCH --open-mode=append
#SBATCH --time=0-01:00:00
#SBATCH --dependency=afterok:3
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --requeue
#
# Made by `zeromt launch slurm --prepare` from its template launcher/clusters/slurm/prepare.sh: a share of the corpus, or the
# shares' merge.

config='configs/runs/my run.yaml'
overrides=(seed=2 'name=a;b' 'output=it'"'"'s')
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
if [[ $SLURM_CPUS_PER_TASK ]]; then srun_step=(--cpus-per-task="$SLURM_CPUS_PER_TASK"); fi

if [[ $SLURM_ARRAY_TASK_ID ]]; then share=(--part "$SLURM_ARRAY_TASK_ID/$parts"); else share=(--merge); fi
exec srun --nodes=1 --ntasks=1 "${srun_step[@]}" "${srun_options[@]}" \
    "${container[@]}" "$python" -P -m launcher prepare "$config" "${share[@]}" -- "${overrides[@]}"
