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
