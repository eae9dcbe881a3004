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
