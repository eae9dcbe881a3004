#!/bin/bash
@DIRECTIVES@
#
# Made by zeromt from its template launcher/clusters/slurm/command.sh: one command, whose exit code is left in a file.

words=(@WORDS@)
modules=(@MODULES@)
sources=(@SOURCES@)
environment=(@ENVIRONMENT@)
container=(@CONTAINER@)
srun_options=(@SRUN_OPTIONS@)
stdout=@STDOUT@

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
